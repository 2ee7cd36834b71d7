//! Infos (MPI 5.0 chapter 10). All of these may be called at any time.

use crate::prelude::*;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// MPI_INFO_ENV: what is known of how this program was started (MPI 5.0 §11.5). Programs cannot
/// change it.
pub fn environment() -> InfoRef {
    static ENVIRONMENT: OnceLock<Arc<Info>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let info = Info::new();
        info.identity.set(constants::MPI_INFO_ENV);
        let mut words = std::env::args_os();
        if let Some(command) = words.next() {
            set(&info, "command", command.as_bytes());
        }
        let arguments: Vec<_> = words.collect();
        set(&info, "argv", arguments.join(" ".as_ref()).as_bytes());
        if let Ok(directory) = std::env::current_dir() {
            set(&info, "wdir", directory.as_os_str().as_bytes());
        }
        set(&info, "host", super::env::host().as_bytes());
        set(&info, "arch", std::env::consts::ARCH.as_bytes());
        let handler = ferry_mpi::errhandler::initial();
        set(&info, "mpi_initial_errhandler", handler.name().as_bytes());
        info
    })
}

/// Sets a key unless the value is empty. Truncates values that are too long.
fn set(info: &Info, key: &str, value: &[u8]) {
    if !value.is_empty() {
        info.set(
            key.as_bytes(),
            &value[..value.len().min(constants::MPI_MAX_INFO_VAL - 1)],
        );
    }
}

/// The info, unless it is read-only.
fn changeable(info: InfoRef) -> Result<InfoRef> {
    if Arc::ptr_eq(info, environment()) {
        Err(err!(Info, "info is MPI_INFO_ENV, which cannot be changed"))
    } else {
        Ok(info)
    }
}

pub fn info_create(info: New<Info>) -> Result<()> {
    info.set(Info::new());
    Ok(())
}

pub fn info_create_env(argc: usize, argv: *mut *mut c_char, info: New<Info>) -> Result<()> {
    let new = environment().duplicate();
    // The answer is the same before and after MPI_Init, which adds these.
    for late in [&b"maxprocs"[..], b"thread_level"] {
        new.delete(late);
    }
    if argc > 0 && !argv.is_null() {
        // SAFETY: the program passes main's arguments; each is a string or null.
        let words: Vec<&[u8]> = unsafe {
            (0..argc)
                .map(|i| *argv.add(i))
                .take_while(|w| !w.is_null())
                .map(|w| CStr::from_ptr(w).to_bytes())
                .collect()
        };
        if let Some((command, arguments)) = words.split_first() {
            set(&new, "command", command);
            new.delete(b"argv");
            set(&new, "argv", &arguments.join(&b' '));
        }
    }
    info.set(new);
    Ok(())
}

pub fn info_delete(info: InfoRef, key: &CStr) -> Result<()> {
    if changeable(info)?.delete(key.to_bytes()) {
        Ok(())
    } else {
        Err(err!(
            InfoNokey,
            "key is {:?}, which is not in info",
            key.to_string_lossy()
        ))
    }
}

pub fn info_dup(info: InfoRef, newinfo: New<Info>) -> Result<()> {
    newinfo.set(info.duplicate());
    Ok(())
}

pub fn info_free(info: InOutHandle<Info>) -> Result<()> {
    info.free().map(drop)
}

pub fn info_set(info: InfoRef, key: &CStr, value: &CStr) -> Result<()> {
    changeable(info)?.set(key.to_bytes(), value.to_bytes());
    Ok(())
}

pub fn info_get_nkeys(info: InfoRef, nkeys: Out<i32>) -> Result<()> {
    nkeys.set(info.len() as i32);
    Ok(())
}

pub fn info_get_nthkey(info: InfoRef, n: i32, key: OutText) -> Result<()> {
    let found = usize::try_from(n).ok().and_then(|n| info.key(n));
    key.set(found.ok_or_else(|| err!(Arg, "n is {n}, but info has {} keys", info.len()))?);
    Ok(())
}

pub fn info_get_valuelen(
    info: InfoRef,
    key: &CStr,
    valuelen: Out<i32>,
    flag: OutFlag,
) -> Result<()> {
    let value = info.value(key.to_bytes());
    flag.set(value.is_some());
    if let Some(value) = value {
        valuelen.set(value.len() as i32);
    }
    Ok(())
}

/// `value` has room for `valuelen` characters and a null.
pub fn info_get(
    info: InfoRef,
    key: &CStr,
    valuelen: usize,
    value: *mut c_char,
    flag: OutFlag,
) -> Result<()> {
    let found = info.value(key.to_bytes());
    flag.set(found.is_some());
    if let Some(found) = found {
        // SAFETY: the program's room is as large as the standard says.
        unsafe { OutText::new(value, valuelen + 1, "value") }?.set(found);
    }
    Ok(())
}

/// `buflen`: on entry the size of the buffer, on return the size needed, both with the final null.
pub fn info_get_string(
    info: InfoRef,
    key: &CStr,
    buflen: &mut i32,
    value: *mut c_char,
    flag: OutFlag,
) -> Result<()> {
    let room =
        usize::try_from(*buflen).map_err(|_| err!(Arg, "buflen is {buflen}, which is negative"))?;
    let found = info.value(key.to_bytes());
    flag.set(found.is_some());
    if let Some(found) = found {
        if room > 0 {
            // SAFETY: the program's room is as large as it says.
            unsafe { OutText::new(value, room, "value") }?.set(&found);
        }
        *buflen = found.len() as i32 + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> InfoRef {
        Box::leak(Box::new(Info::of([("key", "a value")])))
    }

    fn flag(place: &mut i32) -> OutFlag {
        // SAFETY: a valid place.
        unsafe { OutFlag::new(place, "flag") }.unwrap()
    }

    #[test]
    fn strings_are_cut_and_their_need_is_told() {
        let (mut room, mut found, mut length) = ([1 as c_char; 8], 0, 4);
        info_get_string(
            made(),
            c"key",
            &mut length,
            room.as_mut_ptr(),
            flag(&mut found),
        )
        .unwrap();
        assert_eq!((found, length), (1, 8));
        assert_eq!(room.map(|c| c as u8), *b"a v\0\x01\x01\x01\x01");
        length = 0;
        info_get_string(
            made(),
            c"key",
            &mut length,
            std::ptr::null_mut(),
            flag(&mut found),
        )
        .unwrap();
        assert_eq!(length, 8);
        length = 5;
        info_get_string(
            made(),
            c"other",
            &mut length,
            room.as_mut_ptr(),
            flag(&mut found),
        )
        .unwrap();
        assert_eq!((found, length), (0, 5));
    }

    #[test]
    fn the_old_form_counts_without_the_null() {
        let (mut room, mut found) = ([1 as c_char; 4], 0);
        info_get(made(), c"key", 3, room.as_mut_ptr(), flag(&mut found)).unwrap();
        assert_eq!((found, room.map(|c| c as u8)), (1, *b"a v\0"));
    }

    #[test]
    fn the_environment_is_not_to_be_changed() {
        assert_eq!(
            info_set(environment(), c"command", c"x")
                .unwrap_err()
                .kind(),
            Kind::Info
        );
        assert!(info_delete(environment(), c"command").is_err());
        assert_eq!(
            info_delete(made(), c"nothing").unwrap_err().kind(),
            Kind::InfoNokey
        );
        assert!(environment().text("command").is_some());
    }
}
