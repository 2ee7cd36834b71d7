//! Attributes (MPI 5.0 §7.7), and the predefined ones of communicators (§9.1.2).

use crate::prelude::*;
use ferry_mpi::attr::{Attributes, CopyPolicy, Keyval, ObjectKind, of_type};
use ferry_mpi::process::process;
use ferry_mpi::win::{AttributeValues, Flavor};
use std::sync::atomic::{AtomicI32, Ordering};

/// Maps the return value of a C callback: anything but MPI_SUCCESS is the program's error code.
fn answer(code: i32, what: &str) -> Result<()> {
    match code {
        constants::MPI_SUCCESS => Ok(()),
        code => Err(Error::new(
            Kind::Code(code),
            format!("the attribute's {what} callback returned {code}"),
        )),
    }
}

/// The program's extra state, which callbacks get.
#[derive(Clone, Copy)]
struct ExtraState(*mut c_void);
// SAFETY: MPI never dereferences it.
unsafe impl Send for ExtraState {}
// SAFETY: the pointer is only copied.
unsafe impl Sync for ExtraState {}
impl ExtraState {
    fn pointer(self) -> *mut c_void {
        self.0
    }
}

fn create(
    kind: ObjectKind,
    copy: CopyFunction,
    delete: DeleteFunction,
    keyval: Out<i32>,
    extra: *mut c_void,
) -> Result<()> {
    let extra = ExtraState(extra);
    let copy = match copy {
        CopyFunction::Null => CopyPolicy::Never,
        CopyFunction::Dup => CopyPolicy::Same,
        CopyFunction::User(f) => CopyPolicy::Callback(Box::new(move |object, key, value| {
            let (mut new, mut flag) = (0usize, 0);
            let out: *mut usize = &mut new;
            // SAFETY: the program's function of this type; it writes a pointer and an int.
            let code = unsafe {
                f(
                    object,
                    key,
                    extra.pointer(),
                    value as *mut c_void,
                    out.cast(),
                    &mut flag,
                )
            };
            answer(code, "copy").map(|()| (flag != 0).then_some(new))
        })),
    };
    let delete: Option<ferry_mpi::attr::DeleteCallback> = match delete {
        None => None,
        Some(f) => Some(Box::new(move |object, key, value| {
            // SAFETY: the program's function of this type.
            answer(
                unsafe { f(object, key, value as *mut c_void, extra.pointer()) },
                "delete",
            )
        })),
    };
    keyval.set(Keyval::create(kind, copy, delete)?);
    Ok(())
}

fn free(kind: ObjectKind, keyval: &mut i32) -> Result<()> {
    Keyval::free(kind, *keyval)?;
    *keyval = constants::MPI_KEYVAL_INVALID;
    Ok(())
}

fn get(
    kind: ObjectKind,
    attributes: &Attributes,
    keyval: i32,
    value: OutPointer,
    flag: OutFlag,
) -> Result<()> {
    Keyval::find(kind, keyval)?;
    let found = attributes.value(keyval);
    if let Some(found) = found {
        value.set(found as *mut c_void);
    }
    flag.set(found.is_some());
    Ok(())
}

/// The program's key `keyval`, whose attributes it sets and deletes.
///
/// Errors: Keyval. Of a predefined key the text says so.
fn own_key(kind: ObjectKind, keyval: i32) -> Result<Arc<Keyval>> {
    let of_comm = constants::MPI_TAG_UB..=constants::MPI_UNIVERSE_SIZE;
    let of_win = constants::MPI_WIN_BASE..=constants::MPI_WIN_MODEL;
    if of_comm.contains(&keyval) || of_win.contains(&keyval) {
        return Err(err!(
            Keyval,
            "keyval {keyval} is predefined: its attribute can be read, but not set or deleted"
        ));
    }
    Keyval::find(kind, keyval)
}

/// The value of a predefined attribute: MPI hands out a pointer to an int.
fn predefined(keyval: i32) -> Option<&'static AtomicI32> {
    static VALUES: [AtomicI32; 7] = [const { AtomicI32::new(0) }; 7];
    let process = process();
    let value = match keyval {
        constants::MPI_TAG_UB => args::TAG_UB,
        constants::MPI_HOST => constants::MPI_PROC_NULL,
        constants::MPI_IO => constants::MPI_ANY_SOURCE,
        // All processes of a node read one clock.
        constants::MPI_WTIME_IS_GLOBAL => {
            i32::from(process.rank_info.local_ranks.len() == process.size.max(1) as usize)
        }
        constants::MPI_UNIVERSE_SIZE => process.rank_info.universe as i32,
        constants::MPI_LASTUSEDCODE => crate::codes::last_used(),
        constants::MPI_APPNUM => process.rank_info.appnum as i32,
        _ => return None,
    };
    let stored = &VALUES[(keyval - constants::MPI_TAG_UB) as usize];
    stored.store(value, Ordering::Relaxed);
    Some(stored)
}

pub fn comm_create_keyval(
    comm_copy_attr_fn: CopyFunction,
    comm_delete_attr_fn: DeleteFunction,
    comm_keyval: Out<i32>,
    extra_state: *mut c_void,
) -> Result<()> {
    create(
        ObjectKind::Comm,
        comm_copy_attr_fn,
        comm_delete_attr_fn,
        comm_keyval,
        extra_state,
    )
}

pub fn comm_free_keyval(comm_keyval: &mut i32) -> Result<()> {
    free(ObjectKind::Comm, comm_keyval)
}

pub fn comm_set_attr(comm: CommRef, comm_keyval: i32, attribute_val: *mut c_void) -> Result<()> {
    let keyval = own_key(ObjectKind::Comm, comm_keyval)?;
    comm.attributes
        .set(comm.identity.bits(), &keyval, attribute_val as usize)
}

pub fn comm_get_attr(
    comm: CommRef,
    comm_keyval: i32,
    attribute_val: OutPointer,
    flag: OutFlag,
) -> Result<()> {
    if let Some(stored) = predefined(comm_keyval) {
        // Of a session's communicators the largest tag alone can be asked (MPI 5.0 §9.1.2).
        if comm_keyval != constants::MPI_TAG_UB && comm.group.session().is_some() {
            flag.set(false);
            return Ok(());
        }
        attribute_val.set(stored.as_ptr().cast());
        flag.set(true);
        return Ok(());
    }
    get(
        ObjectKind::Comm,
        &comm.attributes,
        comm_keyval,
        attribute_val,
        flag,
    )
}

pub fn comm_delete_attr(comm: CommRef, comm_keyval: i32) -> Result<()> {
    let keyval = own_key(ObjectKind::Comm, comm_keyval)?;
    comm.attributes.delete(comm.identity.bits(), &keyval)
}

// The names of MPI 1.

pub fn keyval_create(
    copy_fn: CopyFunction,
    delete_fn: DeleteFunction,
    keyval: Out<i32>,
    extra_state: *mut c_void,
) -> Result<()> {
    comm_create_keyval(copy_fn, delete_fn, keyval, extra_state)
}

pub fn keyval_free(keyval: &mut i32) -> Result<()> {
    comm_free_keyval(keyval)
}

pub fn attr_put(comm: CommRef, keyval: i32, attribute_val: *mut c_void) -> Result<()> {
    comm_set_attr(comm, keyval, attribute_val)
}

pub fn attr_get(
    comm: CommRef,
    keyval: i32,
    attribute_val: OutPointer,
    flag: OutFlag,
) -> Result<()> {
    comm_get_attr(comm, keyval, attribute_val, flag)
}

pub fn attr_delete(comm: CommRef, keyval: i32) -> Result<()> {
    comm_delete_attr(comm, keyval)
}

pub fn type_create_keyval(
    type_copy_attr_fn: CopyFunction,
    type_delete_attr_fn: DeleteFunction,
    type_keyval: Out<i32>,
    extra_state: *mut c_void,
) -> Result<()> {
    create(
        ObjectKind::Type,
        type_copy_attr_fn,
        type_delete_attr_fn,
        type_keyval,
        extra_state,
    )
}

pub fn type_free_keyval(type_keyval: &mut i32) -> Result<()> {
    free(ObjectKind::Type, type_keyval)
}

pub fn type_set_attr(
    datatype: DatatypeRef,
    type_keyval: i32,
    attribute_val: *mut c_void,
) -> Result<()> {
    let keyval = own_key(ObjectKind::Type, type_keyval)?;
    of_type(datatype).set(
        datatype.handle.load(Ordering::Relaxed),
        &keyval,
        attribute_val as usize,
    )
}

pub fn type_get_attr(
    datatype: DatatypeRef,
    type_keyval: i32,
    attribute_val: OutPointer,
    flag: OutFlag,
) -> Result<()> {
    get(
        ObjectKind::Type,
        of_type(datatype),
        type_keyval,
        attribute_val,
        flag,
    )
}

pub fn type_delete_attr(datatype: DatatypeRef, type_keyval: i32) -> Result<()> {
    let keyval = own_key(ObjectKind::Type, type_keyval)?;
    of_type(datatype).delete(datatype.handle.load(Ordering::Relaxed), &keyval)
}

pub fn win_create_keyval(
    win_copy_attr_fn: CopyFunction,
    win_delete_attr_fn: DeleteFunction,
    win_keyval: Out<i32>,
    extra_state: *mut c_void,
) -> Result<()> {
    create(
        ObjectKind::Win,
        win_copy_attr_fn,
        win_delete_attr_fn,
        win_keyval,
        extra_state,
    )
}

pub fn win_free_keyval(win_keyval: &mut i32) -> Result<()> {
    free(ObjectKind::Win, win_keyval)
}

pub fn win_set_attr(win: WinRef, win_keyval: i32, attribute_val: *mut c_void) -> Result<()> {
    let keyval = own_key(ObjectKind::Win, win_keyval)?;
    win.attributes
        .set(win.identity.bits(), &keyval, attribute_val as usize)
}

pub fn win_get_attr(
    win: WinRef,
    win_keyval: i32,
    attribute_val: OutPointer,
    flag: OutFlag,
) -> Result<()> {
    let Some(address) = predefined_of_window(win, win_keyval) else {
        return get(
            ObjectKind::Win,
            &win.attributes,
            win_keyval,
            attribute_val,
            flag,
        );
    };
    attribute_val.set(address);
    flag.set(true);
    Ok(())
}

/// A predefined attribute of a window (MPI 5.0 §12.2.6): its address, or that of a number.
fn predefined_of_window(win: &Win, keyval: i32) -> Option<*mut c_void> {
    let values = win.attribute_values.get_or_init(|| AttributeValues {
        size: win.size() as i64,
        disp_unit: i32::try_from(win.disp_unit()).unwrap_or(i32::MAX),
        flavor: match win.flavor() {
            Flavor::Create => constants::MPI_WIN_FLAVOR_CREATE,
            Flavor::Allocate => constants::MPI_WIN_FLAVOR_ALLOCATE,
            Flavor::Dynamic => constants::MPI_WIN_FLAVOR_DYNAMIC,
            Flavor::Shared => constants::MPI_WIN_FLAVOR_SHARED,
        },
        model: constants::MPI_WIN_UNIFIED,
    });
    let number = |value: &i32| std::ptr::from_ref(value).cast_mut().cast();
    Some(match keyval {
        constants::MPI_WIN_BASE => win.base().cast(),
        constants::MPI_WIN_SIZE => std::ptr::from_ref(&values.size).cast_mut().cast(),
        constants::MPI_WIN_DISP_UNIT => number(&values.disp_unit),
        constants::MPI_WIN_CREATE_FLAVOR => number(&values.flavor),
        constants::MPI_WIN_MODEL => number(&values.model),
        _ => return None,
    })
}

pub fn win_delete_attr(win: WinRef, win_keyval: i32) -> Result<()> {
    let keyval = own_key(ObjectKind::Win, win_keyval)?;
    win.attributes.delete(win.identity.bits(), &keyval)
}
