//! Datatypes in another data representation: the same type map, with basic types of other sizes
//! (MPI 5.0 §14.5).

use crate::{Basic, Constructor, Datatype, TypeError};
use std::sync::Arc;

impl Datatype {
    /// The type with each basic type replaced by as many bytes as `bytes` says, as a file has it.
    /// Displacements that count elements follow the new sizes, those in bytes stay. The type itself
    /// if all sizes are as in memory.
    ///
    /// # Errors
    /// Those of `bytes`, and [`TypeError::Overflow`] if an offset no longer fits into 64 bits.
    pub fn in_representation<E: From<TypeError>>(
        self: &Arc<Datatype>,
        bytes: &mut dyn FnMut(Basic) -> Result<i64, E>,
    ) -> Result<Arc<Datatype>, E> {
        if let Some(basic) = self.leaf {
            return self.as_bytes(bytes(basic)?);
        }
        let constructor = match &self.constructor {
            Constructor::ValueIndex { value, index } => {
                let size = bytes(*value)? + bytes(*index)?;
                return self.as_bytes(size);
            }
            Constructor::Struct {
                blocklengths,
                displacements,
                types,
            } => {
                let replaced = types.iter().map(|t| t.in_representation(bytes));
                let replaced = replaced.collect::<Result<Box<[_]>, E>>()?;
                if types.iter().zip(&replaced).all(|(a, b)| Arc::ptr_eq(a, b)) {
                    return Ok(self.clone());
                }
                Constructor::Struct {
                    blocklengths: blocklengths.clone(),
                    displacements: displacements.clone(),
                    types: replaced,
                }
            }
            other => {
                let mut copy = other.clone();
                let Some(old) = old_of(&mut copy) else {
                    return Ok(self.clone());
                };
                let replaced = old.in_representation(bytes)?;
                if Arc::ptr_eq(old, &replaced) {
                    return Ok(self.clone());
                }
                *old = replaced;
                copy
            }
        };
        let replaced = Datatype::new(constructor, self.width)?;
        replaced.commit();
        Ok(replaced)
    }

    fn as_bytes<E: From<TypeError>>(self: &Arc<Datatype>, size: i64) -> Result<Arc<Datatype>, E> {
        if self.size() == size && self.extent() == size {
            return Ok(self.clone());
        }
        let replaced = Datatype::contiguous(size, Datatype::basic(Basic::Byte))?;
        replaced.commit();
        Ok(replaced)
    }
}

/// The one type that a constructor builds on.
fn old_of(constructor: &mut Constructor) -> Option<&mut Arc<Datatype>> {
    match constructor {
        Constructor::Dup(old)
        | Constructor::Contiguous { old, .. }
        | Constructor::Vector { old, .. }
        | Constructor::Hvector { old, .. }
        | Constructor::Indexed { old, .. }
        | Constructor::Hindexed { old, .. }
        | Constructor::IndexedBlock { old, .. }
        | Constructor::HindexedBlock { old, .. }
        | Constructor::Subarray { old, .. }
        | Constructor::Darray { old, .. }
        | Constructor::Resized { old, .. } => Some(old),
        Constructor::Named(_)
        | Constructor::F90Real { .. }
        | Constructor::F90Complex { .. }
        | Constructor::F90Integer { .. }
        | Constructor::ValueIndex { .. }
        | Constructor::Struct { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn external(t: &Arc<Datatype>) -> Arc<Datatype> {
        let mut bytes = |basic: Basic| Ok::<i64, TypeError>(basic.external_size() as i64);
        t.in_representation(&mut bytes).unwrap()
    }

    #[test]
    fn types_of_the_same_size_stay() {
        let double = Datatype::basic(Basic::Double);
        let t = Datatype::vector(3, 1, 2, double).unwrap();
        assert!(Arc::ptr_eq(&external(&t), &t));
        let types = [double.clone(), Datatype::basic(Basic::Int).clone()];
        let t = Datatype::structure(&[1, 1], &[0, 8], &types).unwrap();
        assert!(Arc::ptr_eq(&external(&t), &t));
    }

    #[test]
    fn strides_of_elements_shrink_with_them() {
        let long = Datatype::basic(Basic::Long);
        assert_eq!(
            (external(long).size(), external(long).extent()),
            (4, 4),
            "a long has 4 bytes in external32"
        );
        let t = external(&Datatype::vector(3, 1, 2, long).unwrap());
        assert_eq!((t.size(), t.extent()), (12, 20));
        let t = external(&Datatype::hvector(3, 1, 16, long).unwrap());
        assert_eq!((t.size(), t.extent()), (12, 36));
        let types = [long.clone(), Datatype::basic(Basic::DoubleInt).clone()];
        let t = external(&Datatype::structure(&[2, 1], &[0, 16], &types).unwrap());
        assert_eq!((t.size(), t.extent()), (20, 28));
    }
}
