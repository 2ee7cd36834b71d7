//! Data representations: native, internal, external32, and the program's own (MPI 5.0 §14.5).

use crate::buffer::message_len;
use crate::{Datatype, Result, err};
use ferry_datatype::Basic;
use std::sync::{Arc, Mutex, PoisonError};

/// The functions of a representation that the program has registered (MPI_Register_datarep). They
/// run without the device's lock.
pub trait RepresentationFunctions: Send + Sync {
    /// Bytes of a predefined type in the file.
    fn extent(&self, datatype: &Arc<Datatype>) -> Result<i64>;
    /// Converts `count` elements at `file` to elements of `datatype`, the first of them element
    /// number `position` of the buffer `memory`. `false`: there is no such function, and data are
    /// native.
    fn read(
        &self,
        memory: *mut u8,
        datatype: &Arc<Datatype>,
        count: i64,
        file: *const u8,
        position: i64,
    ) -> Result<bool>;
    /// Converts elements of `memory` to the form that they have in the file, at `file`.
    fn write(
        &self,
        memory: *const u8,
        datatype: &Arc<Datatype>,
        count: i64,
        file: *mut u8,
        position: i64,
    ) -> Result<bool>;
}

/// A representation of data in a file.
#[derive(Clone)]
pub(super) enum Representation {
    /// As in memory ("native"). Also "internal": all processes of a job are of one kind.
    Native(&'static str),
    /// Big-endian IEEE numbers of fixed sizes ("external32").
    External32,
    /// The program's own.
    Registered(Arc<Registered>),
}

/// A representation that the program has registered.
pub(super) struct Registered {
    name: String,
    functions: Box<dyn RepresentationFunctions>,
}

static REGISTERED: Mutex<Vec<Arc<Registered>>> = Mutex::new(Vec::new());

/// Registers a representation (MPI_Register_datarep). It stays until the process ends.
///
/// Errors: DupDatarep if there is one of this name.
pub fn register(name: &str, functions: Box<dyn RepresentationFunctions>) -> Result<()> {
    if Representation::named(name).is_some() {
        return Err(err!(
            DupDatarep,
            "datarep is {name:?}, which is defined already"
        ));
    }
    let mut all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(Arc::new(Registered {
        name: name.to_owned(),
        functions,
    }));
    Ok(())
}

impl Representation {
    /// The representation of this name.
    pub fn named(name: &str) -> Option<Representation> {
        match name.to_ascii_lowercase().as_str() {
            "native" => return Some(Representation::Native("native")),
            "internal" => return Some(Representation::Native("internal")),
            "external32" => return Some(Representation::External32),
            _ => {}
        }
        let all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().find(|r| r.name == name);
        found.cloned().map(Representation::Registered)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Representation::Native(name) => name,
            Representation::External32 => "external32",
            Representation::Registered(registered) => &registered.name,
        }
    }

    /// Are data in the file as in memory?
    pub fn is_native(&self) -> bool {
        matches!(self, Representation::Native(_))
    }

    /// The type with the sizes that it has in the file.
    ///
    /// Errors: those of the program's functions; ValueTooLarge.
    pub fn in_file(&self, datatype: &Arc<Datatype>) -> Result<Arc<Datatype>> {
        match self {
            Representation::Native(_) => Ok(datatype.clone()),
            Representation::External32 => {
                let mut bytes = |basic: Basic| Ok(basic.external_size() as i64);
                datatype.in_representation(&mut bytes)
            }
            Representation::Registered(registered) => {
                let mut bytes = |basic| registered.functions.extent(Datatype::basic(basic));
                datatype.in_representation(&mut bytes)
            }
        }
    }

    /// The form in the file of `count` elements at `memory`, as `file_bytes` bytes.
    ///
    /// Errors: Conversion, and those of the program's functions.
    ///
    /// # Safety
    /// The buffer is readable as its count and type say.
    pub unsafe fn to_file(
        &self,
        memory: *const u8,
        count: i64,
        datatype: &Arc<Datatype>,
        file_bytes: usize,
    ) -> Result<Vec<u8>> {
        let mut file = vec![0; file_bytes];
        match self {
            Representation::Native(_) => {
                // SAFETY: the caller's promise.
                unsafe { datatype.pack(memory, count, 0, &mut file) };
            }
            Representation::External32 => {
                // SAFETY: the caller's promise.
                unsafe { datatype.pack_external(memory, count, &mut file) }?;
            }
            Representation::Registered(registered) => {
                let at = file.as_mut_ptr();
                let functions = &registered.functions;
                if !functions.write(memory, datatype, count, at, 0)? {
                    // SAFETY: the caller's promise.
                    unsafe { datatype.pack(memory, count, 0, &mut file) };
                }
            }
        }
        Ok(file)
    }

    /// Stores the beginning of `count` elements at `memory`, whose form in the file has `all` bytes
    /// and begins with `file`. Returns how many bytes of the elements were stored: numbers are
    /// stored whole, and the program's functions get whole elements.
    ///
    /// Errors: those of the program's functions.
    ///
    /// # Safety
    /// The buffer is writable as its count and type say.
    pub unsafe fn to_memory(
        &self,
        memory: *mut u8,
        count: i64,
        datatype: &Arc<Datatype>,
        file: &[u8],
        all: usize,
    ) -> Result<u64> {
        let functions = match self {
            Representation::Native(_) => None,
            Representation::External32 => {
                // SAFETY: the caller's promise.
                return Ok(unsafe { datatype.unpack_external_start(memory, count, file) });
            }
            Representation::Registered(registered) => Some(&registered.functions),
        };
        let each = (all / count.max(1) as usize).max(1);
        let whole = (file.len() / each) as i64;
        if let Some(functions) = functions
            && (whole == 0 || functions.read(memory, datatype, whole, file.as_ptr(), 0)?)
        {
            return Ok(message_len(whole, datatype) as u64);
        }
        // SAFETY: the caller's promise.
        unsafe { datatype.unpack(memory, count, 0, file) };
        Ok(file.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn representations_have_names() {
        for name in ["native", "internal", "external32"] {
            assert_eq!(Representation::named(name).unwrap().name(), name);
        }
        assert!(Representation::named("no such").is_none());
    }
}
