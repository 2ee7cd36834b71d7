//! The datatype object.

use crate::constructor::{Constructor, Expansion, Width};
use crate::layout::Layout;
use crate::shape::{Shape, Uniform};
use crate::{Basic, Form, Signature, TypeError};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// A datatype: a sequence of basic types and displacements (MPI 5.0 §5.1). Only its commit state,
/// name and attributes change.
pub struct Datatype {
    /// The handle under which programs know this datatype, kept here by the abi layer. 0 if there
    /// is none.
    pub handle: AtomicU64,
    /// The name that the program gave it (MPI_Type_set_name).
    pub name: Mutex<Option<String>>,
    /// The attributes that the program has set, for the layer that knows attributes.
    pub attributes: OnceLock<Box<dyn Any + Send + Sync>>,
    pub(crate) constructor: Constructor,
    pub(crate) width: Width,
    /// The same type map, made by simpler constructors.
    pub(crate) body: Option<Arc<Datatype>>,
    /// What it is, if it has no parts.
    pub(crate) leaf: Option<Basic>,
    pub(crate) shape: Shape,
    exists: bool,
    lb: i64,
    extent: i64,
    dense: bool,
    committed: AtomicBool,
    pub(crate) layout: OnceLock<Layout>,
}

/// Handle values of predefined types lie in `PREDEFINED_FIRST..PREDEFINED_FIRST +
/// PREDEFINED_VALUES`.
const PREDEFINED_FIRST: u32 = 0x200;
const PREDEFINED_VALUES: usize = 0x100;

static PREDEFINED: LazyLock<[Option<Arc<Datatype>>; PREDEFINED_VALUES]> = LazyLock::new(|| {
    std::array::from_fn(|i| {
        let basic = Basic::of_value(PREDEFINED_FIRST + i as u32)?;
        let t = Datatype::assemble(
            Constructor::Named(basic),
            Width::Int,
            None,
            Some(basic),
            Shape::basic(basic),
        );
        let t = t.expect("a basic type's bounds are small");
        t.handle.store(basic.value().into(), Ordering::Relaxed);
        t.commit();
        Some(Arc::new(t))
    })
});

impl Datatype {
    /// The predefined datatype with this handle value (0x200 … 0x3ff), if there is one.
    #[inline]
    pub fn predefined(value: u32) -> Option<&'static Arc<Datatype>> {
        PREDEFINED
            .get(value.wrapping_sub(PREDEFINED_FIRST) as usize)?
            .as_ref()
    }

    /// The predefined datatype of this kind.
    #[inline]
    pub fn basic(basic: Basic) -> &'static Arc<Datatype> {
        Datatype::predefined(basic.value()).expect("every basic type is in the table")
    }

    pub(crate) fn assemble(
        constructor: Constructor,
        width: Width,
        body: Option<Arc<Datatype>>,
        leaf: Option<Basic>,
        shape: Shape,
    ) -> Result<Datatype, TypeError> {
        let (lb, extent) = (shape.lb(), shape.extent()?);
        let starts_at_zero = shape.data.is_none_or(|d| d.0 == 0);
        Ok(Datatype {
            handle: AtomicU64::new(0),
            name: Mutex::new(None),
            attributes: OnceLock::new(),
            constructor,
            width,
            body,
            leaf,
            shape,
            exists: leaf.is_none_or(Basic::exists),
            lb,
            extent,
            dense: shape.size == 0 || (shape.run && starts_at_zero && extent == shape.size),
            committed: AtomicBool::new(false),
            layout: OnceLock::new(),
        })
    }

    /// Data bytes (MPI_Type_size). -1 for a predefined type that does not exist here: optional
    /// Fortran kinds.
    #[inline]
    pub fn size(&self) -> i64 {
        if self.exists { self.shape.size } else { -1 }
    }

    /// Returns whether the type exists here. Some optional Fortran kinds do not.
    #[inline]
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// Lower bound, bytes.
    #[inline]
    pub fn lb(&self) -> i64 {
        self.lb
    }

    /// Bytes from one element of an array to the next. -1 for a type that does not exist here.
    #[inline]
    pub fn extent(&self) -> i64 {
        if self.exists { self.extent } else { -1 }
    }

    /// Offset of the lowest data byte from the element's address, bytes. 0 for a type without data.
    #[inline]
    pub fn true_lb(&self) -> i64 {
        self.shape.data.map_or(0, |d| d.0)
    }

    /// Bytes from the lowest data byte to the end of the highest. -1 for a type that does not exist
    /// here.
    #[inline]
    pub fn true_extent(&self) -> i64 {
        if self.exists {
            self.shape.data.map_or(0, |d| d.1.wrapping_sub(d.0))
        } else {
            -1
        }
    }

    /// The bytes that `count` elements span, from the address of the first: offset of the lowest
    /// data byte, and of the byte after the highest. (0, 0) without data.
    ///
    /// # Errors
    /// [`TypeError::Overflow`] if an offset does not fit into 64 bits, and
    /// [`TypeError::Unusable`] if the type does not exist here.
    #[inline]
    pub fn span(&self, count: i64) -> Result<(i64, i64), TypeError> {
        let Some((low, end)) = self.shape.data.filter(|_| count > 0) else {
            return Ok((0, 0));
        };
        let (low, end) = match count {
            1 => (Some(low), Some(end)),
            _ => match (count - 1).checked_mul(self.extent) {
                Some(last) => (low.checked_add(last.min(0)), end.checked_add(last.max(0))),
                None => (None, None),
            },
        };
        match (low, end) {
            (Some(low), Some(end)) if self.exists => Ok((low, end)),
            (Some(_), Some(_)) => Err(self.missing()),
            _ => Err(TypeError::Overflow("span")),
        }
    }

    /// Packed bytes of `count` elements. 0 if `count` is negative.
    ///
    /// # Errors
    /// [`TypeError::Overflow`] if they do not fit into 63 bits, and [`TypeError::Unusable`] if the
    /// type does not exist here.
    #[inline]
    pub fn packed_size(&self, count: i64) -> Result<i64, TypeError> {
        if !self.exists {
            return Err(self.missing());
        }
        let size = self.shape.size.checked_mul(count.max(0));
        size.ok_or(TypeError::Overflow("packed size"))
    }

    #[cold]
    fn missing(&self) -> TypeError {
        let name = self.leaf.map_or("the type", Basic::name);
        TypeError::Unusable(format!("{name} does not exist in this library"))
    }

    /// Returns whether it may be used in communication.
    #[inline]
    pub fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed)
    }

    /// Makes it ready for communication: computes the layout (MPI_Type_commit). An uncommitted type
    /// can be packed, too.
    pub fn commit(&self) {
        if !self.dense {
            self.layout();
        }
        self.committed.store(true, Ordering::Relaxed);
    }

    /// Returns whether any number of elements at an address is one run of bytes that starts there.
    #[inline]
    pub fn is_dense(&self) -> bool {
        self.dense
    }

    /// The run (offset from the address, bytes) that `count` elements are. `None`: they are not
    /// one.
    #[inline]
    pub fn run(&self, count: i64) -> Option<(i64, u64)> {
        let one = self.shape.run && (count == 1 || self.extent == self.shape.size);
        (one && count > 0).then(|| {
            (
                self.true_lb(),
                (self.shape.size as u64).saturating_mul(count as u64),
            )
        })
    }

    /// The predefined type that it is, if it is one: named, or made by an MPI_Type_create_f90_
    /// call.
    #[inline]
    pub fn basic_kind(&self) -> Option<Basic> {
        self.leaf
    }

    /// Returns whether it is predefined, named or not. It must not be freed then.
    pub fn is_predefined(&self) -> bool {
        self.leaf.is_some() || matches!(self.constructor, Constructor::ValueIndex { .. })
    }

    /// The basic type of all its elements, if they have one type. A named pair counts as one type.
    #[inline]
    pub fn uniform_basic(&self) -> Option<Basic> {
        match self.shape.uniform {
            Uniform::All(basic) => Some(basic),
            Uniform::Empty | Uniform::Mixed => None,
        }
    }

    /// Value and index, if it is a predefined pair type, named or not.
    pub fn pair(&self) -> Option<(Basic, Basic)> {
        match (&self.constructor, self.leaf) {
            (Constructor::ValueIndex { value, index }, _) => Some((*value, *index)),
            (_, Some(leaf)) => match leaf.form() {
                Form::Pair(value, index) => Some((value, index)),
                _ => None,
            },
            _ => None,
        }
    }

    /// A copy with its own handle, name and attributes, for MPI_Type_get_contents. For a predefined
    /// type: the type itself.
    pub fn copy(self: &Arc<Datatype>) -> Arc<Datatype> {
        if self.is_predefined() {
            return self.clone();
        }
        Arc::new(Datatype {
            handle: AtomicU64::new(0),
            name: Mutex::new(None),
            attributes: OnceLock::new(),
            constructor: self.constructor.clone(),
            width: self.width,
            body: self.body.clone(),
            leaf: self.leaf,
            shape: self.shape,
            exists: self.exists,
            lb: self.lb,
            extent: self.extent,
            dense: self.dense,
            committed: AtomicBool::new(self.is_committed()),
            layout: self.layout.clone(),
        })
    }

    /// Its type signature.
    pub fn signature(&self) -> Signature {
        self.shape.signature
    }

    /// The constructor call that made it.
    pub fn constructor(&self) -> &Constructor {
        &self.constructor
    }

    /// The name: what the program set, else the predefined type's, else empty (MPI_Type_get_name).
    pub fn label(&self) -> String {
        let set = self.name.lock().unwrap_or_else(|e| e.into_inner());
        match (&*set, &self.constructor) {
            (Some(name), _) => name.clone(),
            (None, Constructor::Named(basic)) => basic.name().to_owned(),
            (None, _) => String::new(),
        }
    }

    pub(crate) fn expansion(&self) -> Expansion<'_> {
        self.constructor.expansion(self.leaf, self.body.as_ref())
    }
}

impl std::fmt::Debug for Datatype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.leaf {
            Some(basic) => f.write_str(basic.name()),
            None => write!(
                f,
                "{:?} of {} bytes, extent {}",
                self.combiner(),
                self.shape.size,
                self.extent
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predefined_types_are_found_by_handle_value() {
        let int = Datatype::predefined(0x209).unwrap();
        assert_eq!(
            (int.size(), int.extent(), int.label().as_str()),
            (4, 4, "MPI_INT")
        );
        assert!(int.is_dense() && int.is_committed() && int.basic_kind() == Some(Basic::Int));
        assert!(
            Datatype::predefined(0x200).is_none(),
            "MPI_DATATYPE_NULL is no type"
        );
        assert!(Datatype::predefined(0x300).is_none());
        assert!(Datatype::predefined(7).is_none());
        assert_eq!(Datatype::basic(Basic::Complex4).size(), -1);
    }

    #[test]
    fn pairs_with_padding_are_not_dense() {
        assert!(Datatype::basic(Basic::FloatInt).is_dense());
        assert!(!Datatype::basic(Basic::DoubleInt).is_dense());
        assert_eq!(Datatype::basic(Basic::DoubleInt).run(1), Some((0, 12)));
        assert_eq!(Datatype::basic(Basic::DoubleInt).run(2), None);
        assert_eq!(Datatype::basic(Basic::ShortInt).run(1), None);
    }
}
