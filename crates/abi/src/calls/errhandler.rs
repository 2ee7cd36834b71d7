//! Error handlers, classes, codes and strings (MPI 5.0 §9.3 to §9.5), and MPI_Abort.

use crate::codes;
use crate::constants::*;
use crate::prelude::*;
use ferry_mpi::ErrhandlerSlot;
use ferry_mpi::errhandler::Target;

/// A handler that calls a C function with the object's handle and the code.
fn handler(target: Target, f: ErrorFunction) -> Arc<Errhandler> {
    Errhandler::user(
        target,
        Box::new(move |object, code| {
            let (mut object, mut code) = (object, code);
            // SAFETY: the program's function, called as the standard says.
            unsafe { f(&raw mut object, &raw mut code) };
            code
        }),
    )
}

/// A handler of a library of another ABI: a function with its state, the object's handle and the
/// code.
pub fn create_translated(
    target: Target,
    f: unsafe extern "C" fn(*mut c_void, *mut Handle, *mut i32),
    state: usize,
    errhandler: &New<Errhandler>,
) {
    let handler = Errhandler::user(
        target,
        Box::new(move |object, code| {
            let (mut object, mut code) = (object, code);
            let state = std::ptr::with_exposed_provenance_mut(state);
            // SAFETY: the other library's function, called with what it asked for.
            unsafe { f(state, &raw mut object, &raw mut code) };
            code
        }),
    );
    give(&handler, errhandler);
}

/// Stores the handler's handle: the predefined one, or the one that the program knows. So it
/// compares equal to the one that was set. The program then holds one more reference.
fn give(handler: &Arc<Errhandler>, out: &New<Errhandler>) {
    for (predefined, handle) in [
        (Errhandler::fatal(), MPI_ERRORS_ARE_FATAL),
        (Errhandler::abort(), MPI_ERRORS_ABORT),
        (Errhandler::returning(), MPI_ERRORS_RETURN),
    ] {
        if Arc::ptr_eq(handler, predefined) {
            return out.set_handle(handle);
        }
    }
    let mut references = handler.references();
    if *references == 0 {
        out.set(handler.clone());
    } else {
        out.set_handle(handler.identity.bits());
    }
    *references += 1;
}

/// Checks that the handler can be set on such objects.
pub fn check(handler: &Errhandler, target: Target) -> Result<()> {
    if handler.fits(target) {
        Ok(())
    } else {
        Err(err!(
            ErrhandlerArg,
            "errhandler was made for {}, and cannot be set on {}",
            handler.target().text(),
            target.text()
        ))
    }
}

/// The error of a program's own call of an error handler.
fn reported(code: i32) -> Result<Error> {
    match codes::text_of(code) {
        Some(text) => Ok(Error::new(Kind::Code(code), text)),
        None => Err(err!(Arg, "errorcode is {code}, which is no error code")),
    }
}

pub fn comm_create_errhandler(
    comm_errhandler_fn: ErrorFunction,
    errhandler: New<Errhandler>,
) -> Result<()> {
    give(&handler(Target::Comm, comm_errhandler_fn), &errhandler);
    Ok(())
}

pub fn win_create_errhandler(
    win_errhandler_fn: ErrorFunction,
    errhandler: New<Errhandler>,
) -> Result<()> {
    give(&handler(Target::Win, win_errhandler_fn), &errhandler);
    Ok(())
}

pub fn file_create_errhandler(
    file_errhandler_fn: ErrorFunction,
    errhandler: New<Errhandler>,
) -> Result<()> {
    give(&handler(Target::File, file_errhandler_fn), &errhandler);
    Ok(())
}

pub fn session_create_errhandler(
    session_errhandler_fn: ErrorFunction,
    errhandler: New<Errhandler>,
) -> Result<()> {
    give(
        &handler(Target::Session, session_errhandler_fn),
        &errhandler,
    );
    Ok(())
}

pub fn errhandler_free(errhandler: InOutHandle<Errhandler>) -> Result<()> {
    // What MPI_Comm_get_errhandler returned is to be freed, and may be predefined.
    if errhandler.is_predefined() {
        errhandler.forget();
        return Ok(());
    }
    let handler = errhandler.object().clone();
    let mut references = handler.references();
    if *references > 1 {
        *references -= 1;
        errhandler.forget();
        return Ok(());
    }
    errhandler.free()?;
    *references = 0;
    Ok(())
}

pub fn comm_set_errhandler(comm: CommRef, errhandler: ErrhandlerRef) -> Result<()> {
    check(errhandler, Target::Comm)?;
    comm.errhandler.set(errhandler);
    Ok(())
}

pub fn comm_get_errhandler(comm: CommRef, errhandler: New<Errhandler>) -> Result<()> {
    give(&comm.errhandler.current(), &errhandler);
    Ok(())
}

pub fn comm_call_errhandler(comm: CommRef, errorcode: i32) -> Result<()> {
    let error = reported(errorcode)?;
    let call = format!("MPI_Comm_call_errhandler{}", raise::comm_text(comm));
    raise::invoke(
        &comm.errhandler.current(),
        comm.identity.bits(),
        errorcode,
        &call,
        &error,
    );
    Ok(())
}

pub fn win_set_errhandler(win: WinRef, errhandler: ErrhandlerRef) -> Result<()> {
    check(errhandler, Target::Win)?;
    win.errhandler.set(errhandler);
    Ok(())
}

pub fn win_get_errhandler(win: WinRef, errhandler: New<Errhandler>) -> Result<()> {
    give(&win.errhandler.current(), &errhandler);
    Ok(())
}

pub fn win_call_errhandler(win: WinRef, errorcode: i32) -> Result<()> {
    let error = reported(errorcode)?;
    let call = format!("MPI_Win_call_errhandler{}", raise::win_text(win));
    raise::invoke(
        &win.errhandler.current(),
        win.identity.bits(),
        errorcode,
        &call,
        &error,
    );
    Ok(())
}

pub fn session_set_errhandler(session: SessionRef, errhandler: ErrhandlerRef) -> Result<()> {
    check(errhandler, Target::Session)?;
    session.errhandler.set(errhandler);
    Ok(())
}

pub fn session_get_errhandler(session: SessionRef, errhandler: New<Errhandler>) -> Result<()> {
    give(&session.errhandler.current(), &errhandler);
    Ok(())
}

pub fn session_call_errhandler(session: SessionRef, errorcode: i32) -> Result<()> {
    let error = reported(errorcode)?;
    raise::invoke(
        &session.errhandler.current(),
        session.identity.bits(),
        errorcode,
        "MPI_Session_call_errhandler",
        &error,
    );
    Ok(())
}

/// The slot of a file's error handler. MPI_FILE_NULL has that of errors without an open file, which
/// new files get, too.
fn slot_of(file: Handle, name: &str) -> Result<&'static ErrhandlerSlot> {
    if file == MPI_FILE_NULL {
        return Ok(ferry_mpi::file::default_errhandler());
    }
    match handle::get::<File>(file) {
        Some(file) => Ok(&file.errhandler),
        None => Err(err!(File, "{name} is {file:#x}, which is no MPI_File")),
    }
}

pub fn file_set_errhandler(file: Handle, errhandler: ErrhandlerRef) -> Result<()> {
    let slot = slot_of(file, "file")?;
    check(errhandler, Target::File)?;
    slot.set(errhandler);
    Ok(())
}

pub fn file_get_errhandler(file: Handle, errhandler: New<Errhandler>) -> Result<()> {
    give(&slot_of(file, "file")?.current(), &errhandler);
    Ok(())
}

pub fn file_call_errhandler(fh: Handle, errorcode: i32) -> Result<()> {
    let slot = slot_of(fh, "fh")?;
    let error = reported(errorcode)?;
    let call = "MPI_File_call_errhandler";
    raise::invoke(&slot.current(), fh, errorcode, call, &error);
    Ok(())
}

pub fn error_class(errorcode: i32, errorclass: Out<i32>) -> Result<()> {
    let class = codes::class_of(errorcode)
        .ok_or_else(|| err!(Arg, "errorcode is {errorcode}, which is no error code"))?;
    errorclass.set(class);
    Ok(())
}

pub fn error_string(errorcode: i32, string: OutText, resultlen: Out<i32>) -> Result<()> {
    let text = codes::text_of(errorcode)
        .ok_or_else(|| err!(Arg, "errorcode is {errorcode}, which is no error code"))?;
    resultlen.set(string.set(text));
    Ok(())
}

pub fn add_error_class(errorclass: Out<i32>) -> Result<()> {
    errorclass.set(codes::add_class()?);
    Ok(())
}

pub fn add_error_code(errorclass: i32, errorcode: Out<i32>) -> Result<()> {
    errorcode.set(codes::add_code(errorclass)?);
    Ok(())
}

pub fn add_error_string(errorcode: i32, string: &CStr) -> Result<()> {
    if string.count_bytes() >= MPI_MAX_ERROR_STRING {
        return Err(err!(
            Arg,
            "string has {} characters; at most {} are allowed",
            string.count_bytes(),
            MPI_MAX_ERROR_STRING - 1
        ));
    }
    codes::set_text(errorcode, Some(string.to_string_lossy().into_owned()))
}

pub fn remove_error_class(errorclass: i32) -> Result<()> {
    codes::remove_class(errorclass)
}

pub fn remove_error_code(errorcode: i32) -> Result<()> {
    codes::remove_code(errorcode)
}

pub fn remove_error_string(errorcode: i32) -> Result<()> {
    codes::set_text(errorcode, None)
}

pub fn abort(comm: CommRef, errorcode: i32) -> Result<()> {
    let text = format!(
        "{}: MPI_Abort{} with error code {errorcode}",
        raise::rank_text(),
        raise::comm_text(comm)
    );
    ferry_mpi::process::abort(errorcode, &text)
}
