//! Reduction operations (MPI 5.0 §6.9).

use crate::prelude::*;
use std::sync::atomic::Ordering;

/// A function of the program as an operation.
fn operation(user_fn: UserFunction) -> ferry_op::UserFunction {
    Box::new(move |input, inout, count, datatype| {
        let callback_handle = CallbackHandle::of(datatype);
        // The function may write to its arguments; each call gets its own.
        let mut handle = callback_handle.handle;
        match user_fn {
            UserFunction::Count(f) => {
                let mut count = count;
                // SAFETY: the program's function, called with what MPI 5.0 §6.9.5 says it gets.
                unsafe {
                    f(
                        input.cast_mut().cast(),
                        inout.cast(),
                        &mut count,
                        &mut handle,
                    )
                }
            }
            UserFunction::TranslatedCount(f, state) => {
                let mut count = count;
                // SAFETY: the other library's function, called with what it asked for.
                unsafe {
                    f(
                        std::ptr::with_exposed_provenance_mut(state),
                        input.cast_mut().cast(),
                        inout.cast(),
                        (&raw mut count).cast(),
                        &mut handle,
                    )
                }
            }
            UserFunction::Int(_) | UserFunction::TranslatedInt(..) => {
                // More elements than an int counts come in several calls.
                let mut done = 0;
                while done < count {
                    let mut len = i32::try_from(count - done).unwrap_or(i32::MAX);
                    let next = done + i64::from(len);
                    let at = (done * datatype.extent()) as isize;
                    // SAFETY: the program's own function; both buffers hold `count` elements, and
                    // `done` is less.
                    let (input, inout) = unsafe { (input.offset(at), inout.offset(at)) };
                    call_int(user_fn, input, inout, &mut len, &mut handle);
                    done = next;
                    handle = callback_handle.handle;
                }
            }
        }
    })
}

/// Calls a function whose counts are int. Both buffers hold `len` elements.
fn call_int(
    user_fn: UserFunction,
    input: *const u8,
    inout: *mut u8,
    len: &mut i32,
    handle: &mut Handle,
) {
    let (input, inout) = (input.cast_mut().cast(), inout.cast());
    match user_fn {
        // SAFETY: the program's function, called with what MPI 5.0 §6.9.5 says it gets.
        UserFunction::Int(f) => unsafe { f(input, inout, len, handle) },
        UserFunction::TranslatedInt(f, state) => {
            let state = std::ptr::with_exposed_provenance_mut(state);
            // SAFETY: the other library's function, called with what it asked for.
            unsafe { f(state, input, inout, (&raw mut *len).cast(), handle) }
        }
        UserFunction::Count(_) | UserFunction::TranslatedCount(..) => {}
    }
}

/// A datatype's handle during a callback. The program may have freed its own while the operation
/// was active (MPI 5.0 §5.1.9). The function still needs a valid one.
pub(super) struct CallbackHandle {
    handle: Handle,
    temporary: bool,
}

impl CallbackHandle {
    pub fn of(datatype: &Arc<Datatype>) -> CallbackHandle {
        let handle = datatype.handle.load(Ordering::Relaxed);
        let valid =
            handle::get::<Datatype>(handle).is_some_and(|found| Arc::ptr_eq(found, datatype));
        if valid {
            return CallbackHandle {
                handle,
                temporary: false,
            };
        }
        CallbackHandle {
            handle: handle::insert(datatype.clone()),
            temporary: true,
        }
    }

    /// The handle.
    pub fn handle(&self) -> Handle {
        self.handle
    }
}

impl Drop for CallbackHandle {
    fn drop(&mut self) {
        if self.temporary {
            drop(handle::remove::<Datatype>(self.handle));
        }
    }
}

/// MPI_Op_create, MPI_Op_create_c.
pub fn op_create(user_fn: UserFunction, commute: bool, op: New<Op>) -> Result<()> {
    op.set(Op::user(operation(user_fn), commute));
    Ok(())
}

/// MPI_Op_free. Active reductions keep the operation until they are complete.
pub fn op_free(op: InOutHandle<Op>) -> Result<()> {
    if op.is_predefined() {
        return Err(err!(
            Op,
            "op is {:?}, which is predefined and cannot be freed",
            op.object()
        ));
    }
    op.free().map(drop)
}

/// MPI_Op_commutative.
pub fn op_commutative(op: OpRef, commute: OutFlag) -> Result<()> {
    commute.set(op.is_commutative());
    Ok(())
}

/// MPI_Reduce_local, MPI_Reduce_local_c.
pub fn reduce_local(
    inbuf: *const u8,
    inoutbuf: *mut u8,
    count: i64,
    datatype: DatatypeRef,
    op: OpRef,
) -> Result<()> {
    op.check(datatype)?;
    if count == 0 {
        return Ok(());
    }
    if std::ptr::eq(inbuf, inoutbuf) {
        return Err(err!(
            Buffer,
            "inbuf and inoutbuf are the same buffer, {inbuf:?}"
        ));
    }
    // SAFETY: the program's buffers hold count elements of the type, as the standard asks.
    unsafe { op.apply(inbuf, inoutbuf, count, datatype) };
    Ok(())
}
