//! Attributes: values that programs and libraries cache on communicators, datatypes and windows
//! (MPI 5.0 §7.7).
//!
//! User callbacks run without a lock. They may call MPI, and set or delete attributes.

use crate::{Datatype, Result, err};
use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The kind of object that a key's attributes are cached on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// Communicators.
    Comm,
    /// Datatypes.
    Type,
    /// Windows.
    Win,
}

/// Copy callback. Called with the old object's handle bits, the key and the value when the object
/// is duplicated. Returns the new object's value, or `None` for no attribute.
pub type CopyCallback = Box<dyn Fn(u64, i32, usize) -> Result<Option<usize>> + Send + Sync>;
/// Delete callback. Called with the object's handle bits, the key and the value when the attribute
/// is deleted or replaced, or when the object is freed.
pub type DeleteCallback = Box<dyn Fn(u64, i32, usize) -> Result<()> + Send + Sync>;

/// What happens to an attribute when its object is duplicated.
pub enum CopyPolicy {
    /// It is not copied (MPI_COMM_NULL_COPY_FN).
    Never,
    /// Its value is copied (MPI_COMM_DUP_FN).
    Same,
    /// The program's callback decides.
    Callback(CopyCallback),
}

/// A key. It lives until the program has freed it and no object has an attribute under it.
pub struct Keyval {
    number: i32,
    kind: ObjectKind,
    copy: CopyPolicy,
    delete: Option<DeleteCallback>,
}

/// A key in the process's table.
struct Entry {
    keyval: Weak<Keyval>,
    /// The program's reference. `None` once the program has freed the key.
    program_ref: Option<Arc<Keyval>>,
}

static KEYVALS: Mutex<Option<HashMap<i32, Entry>>> = Mutex::new(None);
/// The next key's number. Numbers are not reused, so a stale one is always recognised. The first is
/// above those of the predefined keys.
static NEXT: AtomicI32 = AtomicI32::new(1024);

fn with_keyvals<R>(f: impl FnOnce(&mut HashMap<i32, Entry>) -> R) -> R {
    f(KEYVALS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default())
}

impl Keyval {
    /// Makes a new key for attributes of `kind` objects. Returns its number.
    pub fn create(
        kind: ObjectKind,
        copy: CopyPolicy,
        delete: Option<DeleteCallback>,
    ) -> Result<i32> {
        let number = NEXT
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(1))
            .map_err(|_| {
                err!(
                    Other,
                    "2147482624 attribute keys have been made: there are no more numbers"
                )
            })?;
        let keyval = Arc::new(Keyval {
            number,
            kind,
            copy,
            delete,
        });
        with_keyvals(|all| {
            all.insert(
                number,
                Entry {
                    keyval: Arc::downgrade(&keyval),
                    program_ref: Some(keyval),
                },
            )
        });
        Ok(number)
    }

    /// The key `number`, which must be for `kind` objects. A freed key is found while attributes
    /// under it exist.
    ///
    /// Errors: Keyval.
    pub fn find(kind: ObjectKind, number: i32) -> Result<Arc<Keyval>> {
        let found = with_keyvals(|all| all.get(&number).and_then(|entry| entry.keyval.upgrade()));
        match found {
            Some(keyval) if keyval.kind == kind => Ok(keyval),
            Some(keyval) => Err(err!(
                Keyval,
                "keyval {number} was made for objects of another kind ({:?}, not {kind:?})",
                keyval.kind
            )),
            None => Err(err!(
                Keyval,
                "keyval {number} is no attribute key (never made, or freed)"
            )),
        }
    }

    /// Frees the key for the program. Attributes under it stay. While one exists, freeing the key
    /// again is accepted, because delete callbacks often do that.
    ///
    /// Errors: Keyval.
    pub fn free(kind: ObjectKind, number: i32) -> Result<()> {
        let keyval = Keyval::find(kind, number)?;
        let kept = with_keyvals(|all| {
            all.get_mut(&number)
                .and_then(|entry| entry.program_ref.take())
        });
        // Dropped outside the table's lock: the last reference removes the entry.
        drop((keyval, kept));
        Ok(())
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.number
    }
}

impl Drop for Keyval {
    fn drop(&mut self) {
        with_keyvals(|all| all.remove(&self.number));
    }
}

#[derive(Clone)]
struct Attribute {
    keyval: Arc<Keyval>,
    value: usize,
}

/// The attributes of one object, in the order in which they were set.
#[derive(Default)]
pub struct Attributes(Mutex<Vec<Attribute>>);

impl Attributes {
    /// No attributes.
    pub const fn new() -> Attributes {
        Attributes(Mutex::new(Vec::new()))
    }

    fn list(&self) -> MutexGuard<'_, Vec<Attribute>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, number: i32) -> Option<Attribute> {
        self.list()
            .iter()
            .find(|a| a.keyval.number == number)
            .cloned()
    }

    /// The value under the key `number`.
    pub fn value(&self, number: i32) -> Option<usize> {
        self.find(number).map(|a| a.value)
    }

    /// Sets a value. An old value is deleted first, with its callback. `handle` is the object's
    /// handle for callbacks.
    ///
    /// Errors: the delete callback's; the old value then stays.
    pub fn set(&self, handle: u64, keyval: &Arc<Keyval>, value: usize) -> Result<()> {
        if let Some(old) = self.find(keyval.number) {
            old.call_delete(handle)?;
        }
        let mut list = self.list();
        // The order is that of the latest set.
        let dead: Vec<_> = list
            .extract_if(.., |a| a.keyval.number == keyval.number)
            .collect();
        list.push(Attribute {
            keyval: keyval.clone(),
            value,
        });
        drop(list);
        drop(dead);
        Ok(())
    }

    /// Deletes the value under `keyval`.
    ///
    /// Errors: Keyval if there is no value. The delete callback's; the value then stays.
    pub fn delete(&self, handle: u64, keyval: &Arc<Keyval>) -> Result<()> {
        let number = keyval.number;
        let Some(attribute) = self.find(number) else {
            return Err(err!(
                Keyval,
                "the object has no attribute under keyval {number}"
            ));
        };
        attribute.call_delete(handle)?;
        self.remove(&attribute);
        Ok(())
    }

    /// Deletes all values, the last one set first. MPI 5.0 §11.4.1 requires this order on
    /// MPI_COMM_SELF.
    ///
    /// Errors: the first that a delete callback returns. That value and those set before it stay.
    pub fn delete_all(&self, handle: u64) -> Result<()> {
        loop {
            let Some(attribute) = self.list().last().cloned() else {
                return Ok(());
            };
            attribute.call_delete(handle)?;
            self.remove(&attribute);
        }
    }

    /// The attributes for a duplicate of the object. `handle` is the old object's.
    ///
    /// Errors: a copy callback's.
    pub fn duplicate(&self, handle: u64) -> Result<Attributes> {
        let old = self.list().clone();
        let mut new = Vec::with_capacity(old.len());
        for attribute in old {
            let value = match &attribute.keyval.copy {
                CopyPolicy::Never => None,
                CopyPolicy::Same => Some(attribute.value),
                CopyPolicy::Callback(callback) => {
                    callback(handle, attribute.keyval.number, attribute.value)?
                }
            };
            if let Some(value) = value {
                new.push(Attribute { value, ..attribute });
            }
        }
        Ok(Attributes(Mutex::new(new)))
    }

    /// Removes an attribute after its delete callback has run. The callback may have replaced or
    /// removed the attribute.
    fn remove(&self, gone: &Attribute) {
        let mut list = self.list();
        let at = list
            .iter()
            .position(|a| a.keyval.number == gone.keyval.number && a.value == gone.value);
        let removed = at.map(|at| list.remove(at));
        drop(list);
        drop(removed);
    }
}

impl Attribute {
    fn call_delete(&self, handle: u64) -> Result<()> {
        match &self.keyval.delete {
            Some(callback) => callback(handle, self.keyval.number, self.value),
            None => Ok(()),
        }
    }
}

/// The attributes of a datatype.
pub fn of_type(datatype: &Datatype) -> &Attributes {
    static NONE: Attributes = Attributes::new();
    let hung = datatype
        .attributes
        .get_or_init(|| Box::new(Attributes::new()));
    // Only attributes are ever stored there.
    hung.downcast_ref().unwrap_or(&NONE)
}

/// Gives `new`, a duplicate of `old`, its attributes (MPI_Type_dup).
///
/// Errors: a copy callback's.
pub fn duplicate_type(old: &Datatype, new: &Datatype) -> Result<()> {
    if old.attributes.get().is_none() {
        return Ok(());
    }
    let copied = of_type(old).duplicate(old.handle.load(Ordering::Relaxed))?;
    let _ = new.attributes.set(Box::new(copied));
    Ok(())
}

/// Deletes the attributes of a datatype that the program frees (MPI_Type_free).
///
/// Errors: a delete callback's; the datatype then stays.
pub fn free_type(datatype: &Datatype) -> Result<()> {
    match datatype.attributes.get() {
        None => Ok(()),
        Some(_) => of_type(datatype).delete_all(datatype.handle.load(Ordering::Relaxed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Kind};

    fn recorder(log: &Arc<Mutex<Vec<usize>>>) -> Option<DeleteCallback> {
        let log = log.clone();
        Some(Box::new(move |handle, _, value| {
            assert_eq!(handle, 7);
            log.lock().unwrap().push(value);
            if value == 13 {
                Err(Error::new(Kind::Code(99), "no"))
            } else {
                Ok(())
            }
        }))
    }

    #[test]
    fn values_are_deleted_last_one_first() {
        let log = Arc::default();
        let keys: Vec<_> = (0..3)
            .map(|_| Keyval::create(ObjectKind::Comm, CopyPolicy::Never, recorder(&log)).unwrap())
            .collect();
        let of = |i: usize| Keyval::find(ObjectKind::Comm, keys[i]).unwrap();
        let attributes = Attributes::new();
        for (i, v) in [(0, 10), (1, 11), (2, 12), (0, 20)] {
            attributes.set(7, &of(i), v).unwrap();
        }
        assert_eq!(*log.lock().unwrap(), [10]);
        attributes.delete_all(7).unwrap();
        assert_eq!(*log.lock().unwrap(), [10, 20, 12, 11]);
        assert_eq!(attributes.value(keys[0]), None);
    }

    #[test]
    fn a_freed_key_lives_while_in_use() {
        let key = Keyval::create(ObjectKind::Type, CopyPolicy::Same, None).unwrap();
        let attributes = Attributes::new();
        attributes
            .set(0, &Keyval::find(ObjectKind::Type, key).unwrap(), 5)
            .unwrap();
        assert_eq!(
            Keyval::find(ObjectKind::Comm, key).err().unwrap().kind(),
            Kind::Keyval
        );
        Keyval::free(ObjectKind::Type, key).unwrap();
        Keyval::free(ObjectKind::Type, key).unwrap();
        assert_eq!(attributes.duplicate(0).unwrap().value(key), Some(5));
        attributes
            .delete(0, &Keyval::find(ObjectKind::Type, key).unwrap())
            .unwrap();
        assert_eq!(
            Keyval::free(ObjectKind::Type, key).unwrap_err().kind(),
            Kind::Keyval
        );
    }

    #[test]
    fn callbacks_decide_about_copies_and_refuse_deletions() {
        let copy: CopyCallback = Box::new(|_, _, v| match v {
            0 => Ok(None),
            9 => Err(Error::new(Kind::Code(77), "no")),
            _ => Ok(Some(v + 1)),
        });
        let log = Arc::default();
        let key =
            Keyval::create(ObjectKind::Comm, CopyPolicy::Callback(copy), recorder(&log)).unwrap();
        let keyval = Keyval::find(ObjectKind::Comm, key).unwrap();
        let attributes = Attributes::new();
        for (value, copied) in [
            (0, Ok(None)),
            (4, Ok(Some(5))),
            (9, Err(Kind::Code(77))),
            (13, Ok(Some(14))),
        ] {
            attributes.set(7, &keyval, value).unwrap();
            assert_eq!(
                attributes
                    .duplicate(7)
                    .map(|a| a.value(key))
                    .map_err(|e| e.kind()),
                copied
            );
        }
        assert_eq!(
            attributes.set(7, &keyval, 1).unwrap_err().kind(),
            Kind::Code(99)
        );
        assert_eq!(
            attributes.delete(7, &keyval).unwrap_err().kind(),
            Kind::Code(99)
        );
        assert_eq!(attributes.delete_all(7).unwrap_err().kind(), Kind::Code(99));
        assert_eq!(attributes.value(key), Some(13));
    }
}
