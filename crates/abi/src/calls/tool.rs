//! The tool interface (MPI 5.0 §15.3): the handles, constants and texts of `ferry_mpi::tool`.

mod events;
mod variables;

pub use events::*;
pub use variables::*;

use super::env;
use crate::constants::*;
use crate::prelude::*;
use ferry_mpi::tool::{self, Category, Enumeration, ToolError, Type, Verbosity};

/// The error code of a tool error. Tool errors call no error handler.
fn failed(error: ToolError) -> Error {
    let code = match error {
        ToolError::NotInitialized => MPI_T_ERR_NOT_INITIALIZED,
        ToolError::Invalid => MPI_T_ERR_INVALID,
        ToolError::InvalidIndex => MPI_T_ERR_INVALID_INDEX,
        ToolError::InvalidSession => MPI_T_ERR_INVALID_SESSION,
        ToolError::InvalidHandle => MPI_T_ERR_INVALID_HANDLE,
        ToolError::InvalidName => MPI_T_ERR_INVALID_NAME,
        ToolError::SetNever => MPI_T_ERR_CVAR_SET_NEVER,
        ToolError::NoWrite => MPI_T_ERR_PVAR_NO_WRITE,
        ToolError::NoStartStop => MPI_T_ERR_PVAR_NO_STARTSTOP,
        ToolError::NoAtomic => MPI_T_ERR_PVAR_NO_ATOMIC,
    };
    Error::new(Kind::Code(code), String::new())
}

/// Checks that MPI_T_init_thread was called.
fn initialised() -> Result<()> {
    tool::initialised().map_err(failed)
}

/// The element with that index.
fn at<T>(all: &[T], index: i32) -> Result<&T> {
    initialised()?;
    usize::try_from(index)
        .ok()
        .and_then(|i| all.get(i))
        .ok_or_else(|| failed(ToolError::InvalidIndex))
}

/// A name argument as text.
fn text(name: &CStr) -> Result<&str> {
    initialised()?;
    name.to_str().map_err(|_| failed(ToolError::InvalidName))
}

/// Stores a text in the program's buffer (MPI 5.0 §15.3.3). A longer text is cut, and the last
/// byte is null. `length` becomes the length of the whole text with its null. Without a length
/// nothing is stored.
fn store_text(text: &str, to: *mut c_char, length: Option<&mut i32>) {
    let Some(length) = length else { return };
    if !to.is_null()
        && let Ok(room @ 1..) = usize::try_from(*length)
    {
        let fits = text.len().min(room - 1);
        // SAFETY: the program promises that much room.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, fits);
            *to.add(fits) = 0;
        }
    }
    *length = text.len() as i32 + 1;
}

fn verbosity_of(verbosity: Verbosity) -> i32 {
    match verbosity {
        Verbosity::UserBasic => MPI_T_VERBOSITY_USER_BASIC,
        Verbosity::UserDetail => MPI_T_VERBOSITY_USER_DETAIL,
        Verbosity::TunerBasic => MPI_T_VERBOSITY_TUNER_BASIC,
        Verbosity::TunerDetail => MPI_T_VERBOSITY_TUNER_DETAIL,
    }
}

fn datatype_of(value_type: Type) -> Handle {
    match value_type {
        Type::Int => MPI_INT,
        Type::Unsigned => MPI_UNSIGNED,
        Type::Large => MPI_UNSIGNED_LONG_LONG,
        Type::Double => MPI_DOUBLE,
        Type::Text => MPI_CHAR,
    }
}

fn binding_of(is_of_comm: bool) -> i32 {
    if is_of_comm {
        MPI_T_BIND_MPI_COMM
    } else {
        MPI_T_BIND_NO_OBJECT
    }
}

/// The communicator to whose handle `object` points, if the variable is bound to communicators.
fn bound(is_of_comm: bool, object: *mut c_void) -> Result<Option<Arc<Comm>>> {
    if !is_of_comm {
        return Ok(None);
    }
    if object.is_null() {
        return Err(failed(ToolError::InvalidHandle));
    }
    // SAFETY: the program passes the address of a communicator's handle.
    let handle = unsafe { object.cast::<Handle>().read_unaligned() };
    let comm = handle::get::<Comm>(handle).ok_or_else(|| failed(ToolError::InvalidHandle))?;
    Ok(Some(comm.clone()))
}

pub fn t_init_thread(required: i32, provided: Out<i32>) -> Result<()> {
    let level = env::level_numbered(required).ok_or_else(|| failed(ToolError::Invalid))?;
    provided.set(env::number_of(tool::init(level)));
    Ok(())
}

pub fn t_finalize() -> Result<()> {
    tool::finalize().map_err(failed)
}

// Enumerations. A handle is FIRST_ENUM plus the number of the enumeration.

const FIRST_ENUM: Handle = 0x100;

fn enum_handle(enumeration: Option<Enumeration>) -> Handle {
    enumeration.map_or(MPI_T_ENUM_NULL, |e| FIRST_ENUM + e.number() as Handle)
}

fn enumeration(handle: Handle) -> Result<Enumeration> {
    initialised()?;
    handle
        .checked_sub(FIRST_ENUM)
        .and_then(|n| Enumeration::numbered(n as usize))
        .ok_or_else(|| failed(ToolError::InvalidHandle))
}

pub fn t_enum_get_info(
    enumtype: Handle,
    num: Out<i32>,
    name: *mut c_char,
    name_len: Option<&mut i32>,
) -> Result<()> {
    let found = enumeration(enumtype)?;
    num.set(found.len() as i32);
    store_text(&found.name(), name, name_len);
    Ok(())
}

pub fn t_enum_get_item(
    enumtype: Handle,
    indx: i32,
    value: Out<i32>,
    name: *mut c_char,
    name_len: Option<&mut i32>,
) -> Result<()> {
    let found = enumeration(enumtype)?;
    let item = usize::try_from(indx).ok().and_then(|i| found.item(i));
    // Wrong indices are INVALID_INDEX: INVALID_ITEM is deprecated (MPI 5.0 §15.3.10).
    let item = item.ok_or_else(|| failed(ToolError::InvalidIndex))?;
    value.set(indx);
    store_text(item, name, name_len);
    Ok(())
}

// Categories.

pub fn t_category_get_num(num_cat: Out<i32>) -> Result<()> {
    initialised()?;
    num_cat.set(Category::ALL.len() as i32);
    Ok(())
}

/// The categories never change.
pub fn t_category_changed(update_number: Out<i32>) -> Result<()> {
    initialised()?;
    update_number.set(0);
    Ok(())
}

pub fn t_category_get_index(name: &CStr, cat_index: Out<i32>) -> Result<()> {
    cat_index.set(Category::index(text(name)?).map_err(failed)? as i32);
    Ok(())
}

pub fn t_category_get_info(
    cat_index: i32,
    name: *mut c_char,
    name_len: Option<&mut i32>,
    desc: *mut c_char,
    desc_len: Option<&mut i32>,
    num_cvars: Out<i32>,
    num_pvars: Out<i32>,
    num_categories: Out<i32>,
) -> Result<()> {
    let category = at(&Category::ALL, cat_index)?;
    store_text(category.name(), name, name_len);
    store_text(category.description(), desc, desc_len);
    num_cvars.set(category.controls().len() as i32);
    num_pvars.set(category.performances().len() as i32);
    num_categories.set(category.children().len() as i32);
    Ok(())
}

pub fn t_category_get_num_events(cat_index: i32, num_events: Out<i32>) -> Result<()> {
    num_events.set(at(&Category::ALL, cat_index)?.events().len() as i32);
    Ok(())
}

/// Stores the first `len` elements of `all`.
fn list(all: Vec<usize>, len: i32, indices: OutInts) {
    let room = usize::try_from(len).unwrap_or(0);
    indices.set_all(all.into_iter().take(room).map(|i| i as i32));
}

pub fn t_category_get_cvars(cat_index: i32, len: i32, indices: OutInts) -> Result<()> {
    list(at(&Category::ALL, cat_index)?.controls(), len, indices);
    Ok(())
}

pub fn t_category_get_pvars(cat_index: i32, len: i32, indices: OutInts) -> Result<()> {
    list(at(&Category::ALL, cat_index)?.performances(), len, indices);
    Ok(())
}

pub fn t_category_get_events(cat_index: i32, len: i32, indices: OutInts) -> Result<()> {
    list(at(&Category::ALL, cat_index)?.events(), len, indices);
    Ok(())
}

pub fn t_category_get_categories(cat_index: i32, len: i32, indices: OutInts) -> Result<()> {
    list(at(&Category::ALL, cat_index)?.children(), len, indices);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_their_full_length_is_stored() {
        let mut room = [1 as c_char; 4];
        let mut length = 4;
        store_text("ferry", room.as_mut_ptr(), Some(&mut length));
        assert_eq!((room.map(|c| c as u8), length), (*b"fer\0", 6));
        room = [1; 4];
        length = 0;
        store_text("ferry", room.as_mut_ptr(), Some(&mut length));
        assert_eq!((room, length), ([1; 4], 6));
        store_text("ferry", room.as_mut_ptr(), None);
        assert_eq!(room, [1; 4]);
        length = 9;
        store_text("ferry", std::ptr::null_mut(), Some(&mut length));
        assert_eq!(length, 6);
    }

    #[test]
    fn enumerations_are_distinct_from_other_handles() {
        tool::init(ferry_mpi::process::ThreadLevel::Single);
        for e in Enumeration::all() {
            assert_eq!(enumeration(enum_handle(Some(e))).unwrap(), e);
        }
        for wrong in [
            MPI_T_ENUM_NULL,
            FIRST_ENUM - 1,
            FIRST_ENUM + 99,
            Handle::MAX,
        ] {
            assert!(enumeration(wrong).is_err());
        }
    }
}
