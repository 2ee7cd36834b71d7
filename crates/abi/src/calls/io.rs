//! Files (MPI 5.0 chapter 14).
//!
//! Each kind of access is written once. The macros make its calls with an explicit offset, by the
//! individual and by the shared file pointer.

use super::op::CallbackHandle;
use crate::prelude::*;
use ferry_mpi::file::{
    self, OpenMode, Position, RepresentationFunctions, SplitCollective, ViewArguments, Whence,
};
use ferry_mpi::pt2pt::Buffer;
use ferry_mpi::request::Outcome;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What MPI_File_open gets beside the communicator: name, mode, hints, handle.
type OpenArguments<'a> = (&'a CStr, i32, Option<InfoRef>, New<File>);
/// What MPI_File_set_view gets: displacement, etype, filetype, representation, hints.
type SetViewArguments<'a> = (i64, DatatypeRef, DatatypeRef, &'a CStr, Option<InfoRef>);

/// The modes of MPI_File_open.
const MODES: i32 = constants::MPI_MODE_APPEND
    | constants::MPI_MODE_CREATE
    | constants::MPI_MODE_DELETE_ON_CLOSE
    | constants::MPI_MODE_EXCL
    | constants::MPI_MODE_RDONLY
    | constants::MPI_MODE_RDWR
    | constants::MPI_MODE_SEQUENTIAL
    | constants::MPI_MODE_UNIQUE_OPEN
    | constants::MPI_MODE_WRONLY;

// Files.

fn path(filename: &CStr) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(filename.to_bytes()))
}

/// The mode of an amode. One with no access, or with several, allows nothing.
fn mode(amode: i32) -> OpenMode {
    let has = |mode: i32| amode & mode != 0;
    let accesses = [
        has(constants::MPI_MODE_RDONLY),
        has(constants::MPI_MODE_WRONLY),
        has(constants::MPI_MODE_RDWR),
    ];
    let (read, write) = match accesses {
        _ if amode & !MODES != 0 => (false, false),
        [true, false, false] => (true, false),
        [false, true, false] => (false, true),
        [false, false, true] => (true, true),
        _ => (false, false),
    };
    OpenMode {
        amode,
        read,
        write,
        create: has(constants::MPI_MODE_CREATE),
        exclusive: has(constants::MPI_MODE_EXCL),
        append: has(constants::MPI_MODE_APPEND),
        delete_on_close: has(constants::MPI_MODE_DELETE_ON_CLOSE),
        sequential: has(constants::MPI_MODE_SEQUENTIAL),
    }
}

pub fn file_open(comm: CommRef, arguments: Result<OpenArguments<'_>>) -> Result<()> {
    let (arguments, fh) = with_result(arguments.map(|(filename, amode, info, fh)| {
        let info = info.map(|info| &**info);
        ((path(filename), mode(amode), info), fh)
    }));
    let file = File::open(comm, arguments)?;
    if let Some(fh) = fh {
        fh.set(file);
    }
    Ok(())
}

/// The arguments for the mpi floor, and the place of the result, which is there if they are valid.
fn with_result<A, R>(both: Result<(A, R)>) -> (Result<A>, Option<R>) {
    match both {
        Ok((arguments, result)) => (Ok(arguments), Some(result)),
        Err(e) => (Err(e), None),
    }
}

pub fn file_close(fh: InOutHandle<File>) -> Result<()> {
    fh.object().check_may_close()?;
    let file = fh.object().clone();
    let closed = file.close();
    // The file is closed, also if that has met with an error.
    fh.free()?;
    closed.map_err(|e| e.on_file(&file))
}

pub fn file_delete(filename: &CStr, _info: Option<InfoRef>) -> Result<()> {
    File::delete(path(filename))
}

pub fn file_get_amode(fh: FileRef, amode: Out<i32>) -> Result<()> {
    amode.set(fh.mode().amode);
    Ok(())
}

pub fn file_get_group(fh: FileRef, group: New<Group>) -> Result<()> {
    group.set(fh.group().duplicate());
    Ok(())
}

pub fn file_get_info(fh: FileRef, info_used: New<Info>) -> Result<()> {
    info_used.set(Info::of(fh.info()));
    Ok(())
}

pub fn file_set_info(fh: FileRef, argument: Result<Option<InfoRef>>) -> Result<()> {
    fh.set_info(argument.map(|info| info.map(|info| &**info)))
}

pub fn file_get_size(fh: FileRef, size: Out<i64>) -> Result<()> {
    size.set(fh.size()? as i64);
    Ok(())
}

pub fn file_set_size(fh: FileRef, size: i64) -> Result<()> {
    fh.set_size(size)
}

pub fn file_preallocate(fh: FileRef, size: i64) -> Result<()> {
    fh.preallocate(size)
}

pub fn file_sync(fh: FileRef) -> Result<()> {
    fh.sync()
}

pub fn file_get_atomicity(fh: FileRef, flag: OutFlag) -> Result<()> {
    flag.set(fh.is_atomic());
    Ok(())
}

pub fn file_set_atomicity(fh: FileRef, flag: bool) -> Result<()> {
    fh.set_atomic(flag)
}

// Views.

pub fn file_set_view(fh: FileRef, arguments: Result<SetViewArguments<'_>>) -> Result<()> {
    let name;
    fh.set_view(match arguments {
        Ok((disp, etype, filetype, datarep, info)) => {
            name = datarep.to_string_lossy();
            Ok(ViewArguments {
                displacement: (disp != constants::MPI_DISPLACEMENT_CURRENT).then_some(disp),
                etype,
                filetype,
                datarep: &name,
                info: info.map(|info| &**info),
            })
        }
        Err(e) => Err(e),
    })
}

pub fn file_get_view(
    fh: FileRef,
    disp: Out<i64>,
    etype: New<Datatype>,
    filetype: New<Datatype>,
    datarep: OutText,
) -> Result<()> {
    let view = fh.describe_view();
    disp.set(view.displacement as i64);
    give_type(&etype, view.etype);
    give_type(&filetype, view.filetype);
    datarep.set(view.datarep);
    Ok(())
}

/// Stores a datatype: a predefined one under its own handle, others under a new handle.
fn give_type(out: &New<Datatype>, datatype: Arc<Datatype>) {
    let known = datatype.handle.load(std::sync::atomic::Ordering::Relaxed);
    if datatype.is_predefined() && known != 0 {
        out.set_handle(known);
    } else {
        out.set(datatype);
    }
}

pub fn file_get_type_extent(fh: FileRef, datatype: DatatypeRef, extent: Out<i64>) -> Result<()> {
    extent.set(fh.type_extent(datatype)?);
    Ok(())
}

pub fn file_get_byte_offset(fh: FileRef, offset: i64, disp: Out<i64>) -> Result<()> {
    disp.set(fh.byte_offset(offset)? as i64);
    Ok(())
}

// File pointers.

fn whence(whence: i32) -> Result<Whence> {
    match whence {
        constants::MPI_SEEK_SET => Ok(Whence::Beginning),
        constants::MPI_SEEK_CUR => Ok(Whence::Current),
        constants::MPI_SEEK_END => Ok(Whence::End),
        _ => Err(err!(
            Arg,
            "whence is {whence}, which is none of MPI_SEEK_SET, MPI_SEEK_CUR and MPI_SEEK_END"
        )),
    }
}

pub fn file_seek(fh: FileRef, offset: i64, whence: i32) -> Result<()> {
    fh.seek(offset, self::whence(whence)?)
}

pub fn file_seek_shared(fh: FileRef, offset: i64, whence: i32) -> Result<()> {
    fh.seek_shared(offset, self::whence(whence))
}

pub fn file_get_position(fh: FileRef, offset: Out<i64>) -> Result<()> {
    offset.set(fh.position()? as i64);
    Ok(())
}

pub fn file_get_position_shared(fh: FileRef, offset: Out<i64>) -> Result<()> {
    offset.set(fh.position_shared()? as i64);
    Ok(())
}

// Reading and writing.

/// The program's buffer.
fn buffer(at: *const u8, count: i64, datatype: DatatypeRef) -> Buffer<'static> {
    Buffer {
        address: at.cast_mut(),
        count,
        datatype,
    }
}

/// Stores how a blocking access has ended.
fn give_status(status: &OutStatus, outcome: &Outcome) {
    status.store(outcome);
}

/// Blocking accesses: with an explicit offset, and by a file pointer.
macro_rules! blocking {
    ($($buf:ty, $method:ident: $at:ident $(, $name:ident: $position:ident)*;)*) => {$(
        #[inline(always)]
        pub fn $at(fh: FileRef, offset: i64, buf: $buf, count: i64, datatype: DatatypeRef,
            status: OutStatus) -> Result<()> {
            let buffer = buffer(buf, count, datatype);
            // SAFETY: the program passes a buffer that is as it says.
            give_status(&status, &unsafe { fh.$method(Position::Explicit(offset), buffer) }?);
            Ok(())
        }
        $(
        #[inline(always)]
        pub fn $name(fh: FileRef, buf: $buf, count: i64, datatype: DatatypeRef,
            status: OutStatus) -> Result<()> {
            let buffer = buffer(buf, count, datatype);
            // SAFETY: the program passes a buffer that is as it says.
            give_status(&status, &unsafe { fh.$method(Position::$position, buffer) }?);
            Ok(())
        }
        )*
    )*};
}

blocking! {
    *mut u8, read: file_read_at, file_read: Individual, file_read_shared: Shared;
    *const u8, write: file_write_at, file_write: Individual, file_write_shared: Shared;
}

/// Blocking collective accesses: with an explicit offset, and by the individual file pointer.
macro_rules! blocking_collective {
    ($($buf:ty, $method:ident: $at:ident $name:ident;)*) => {$(
        pub fn $at(fh: FileRef, arguments: Result<(i64, $buf, i64, DatatypeRef, OutStatus)>)
            -> Result<()> {
            let (arguments, status) = with_result(arguments.map(|(offset, buf, count, t, status)| {
                ((Position::Explicit(offset), buffer(buf, count, t)), status)
            }));
            // SAFETY: the program passes a buffer that is as it says.
            let outcome = unsafe { fh.$method(arguments) }?;
            if let Some(status) = status {
                give_status(&status, &outcome);
            }
            Ok(())
        }
        pub fn $name(fh: FileRef, arguments: Result<($buf, i64, DatatypeRef, OutStatus)>)
            -> Result<()> {
            let (arguments, status) = with_result(arguments.map(|(buf, count, t, status)| {
                ((Position::Individual, buffer(buf, count, t)), status)
            }));
            // SAFETY: the program passes a buffer that is as it says.
            let outcome = unsafe { fh.$method(arguments) }?;
            if let Some(status) = status {
                give_status(&status, &outcome);
            }
            Ok(())
        }
    )*};
}

blocking_collective! {
    *mut u8, read_all: file_read_at_all file_read_all;
    *const u8, write_all: file_write_at_all file_write_all;
}

/// Non-blocking accesses: with an explicit offset, and by a file pointer.
macro_rules! starting {
    ($($buf:ty, $method:ident: $at:ident $(, $name:ident: $position:ident)*;)*) => {$(
        pub fn $at(fh: FileRef, offset: i64, buf: $buf, count: i64, datatype: DatatypeRef,
            request: Out<Handle>) -> Result<()> {
            let buffer = buffer(buf, count, datatype);
            // SAFETY: the program leaves the buffer alone until completion.
            let started = unsafe { fh.$method(Position::Explicit(offset), buffer) }?;
            request.set(handle::insert(started));
            Ok(())
        }
        $(
        pub fn $name(fh: FileRef, buf: $buf, count: i64, datatype: DatatypeRef,
            request: Out<Handle>) -> Result<()> {
            let buffer = buffer(buf, count, datatype);
            // SAFETY: the program leaves the buffer alone until completion.
            let started = unsafe { fh.$method(Position::$position, buffer) }?;
            request.set(handle::insert(started));
            Ok(())
        }
        )*
    )*};
}

starting! {
    *mut u8, iread: file_iread_at, file_iread: Individual, file_iread_shared: Shared;
    *const u8, iwrite: file_iwrite_at, file_iwrite: Individual, file_iwrite_shared: Shared;
}

/// Non-blocking collective accesses: with an explicit offset, and by the individual file pointer.
macro_rules! starting_collective {
    ($($buf:ty, $method:ident: $at:ident $name:ident;)*) => {$(
        pub fn $at(fh: FileRef, arguments: Result<(i64, $buf, i64, DatatypeRef, Out<Handle>)>)
            -> Result<()> {
            let (arguments, request) = with_result(arguments.map(|(offset, buf, count, t, out)| {
                ((Position::Explicit(offset), buffer(buf, count, t)), out)
            }));
            // SAFETY: the program leaves the buffer alone until completion.
            let started = unsafe { fh.$method(arguments) }?;
            if let Some(request) = request {
                request.set(handle::insert(started));
            }
            Ok(())
        }
        pub fn $name(fh: FileRef, arguments: Result<($buf, i64, DatatypeRef, Out<Handle>)>)
            -> Result<()> {
            let (arguments, request) = with_result(arguments.map(|(buf, count, t, out)| {
                ((Position::Individual, buffer(buf, count, t)), out)
            }));
            // SAFETY: the program leaves the buffer alone until completion.
            let started = unsafe { fh.$method(arguments) }?;
            if let Some(request) = request {
                request.set(handle::insert(started));
            }
            Ok(())
        }
    )*};
}

starting_collective! {
    *mut u8, iread_all: file_iread_at_all file_iread_all;
    *const u8, iwrite_all: file_iwrite_at_all file_iwrite_all;
}

/// Accesses in the order of the ranks.
macro_rules! ordered {
    ($($buf:ty, $method:ident: $name:ident;)*) => {$(
        pub fn $name(fh: FileRef, arguments: Result<($buf, i64, DatatypeRef, OutStatus)>)
            -> Result<()> {
            let (arguments, status) = with_result(
                arguments.map(|(buf, count, t, status)| (buffer(buf, count, t), status)),
            );
            // SAFETY: the program passes a buffer that is as it says.
            let outcome = unsafe { fh.$method(arguments) }?;
            if let Some(status) = status {
                give_status(&status, &outcome);
            }
            Ok(())
        }
    )*};
}

ordered! {
    *mut u8, read_ordered: file_read_ordered;
    *const u8, write_ordered: file_write_ordered;
}

/// Split collectives: begin and end.
macro_rules! split {
    ($($buf:ty, $kind:ident, $position:ident: $begin:ident $end:ident;)*) => {$(
        pub fn $begin(fh: FileRef, arguments: Result<($buf, i64, DatatypeRef)>) -> Result<()> {
            let arguments = arguments
                .map(|(buf, count, t)| (Position::$position, buffer(buf, count, t)));
            // SAFETY: the program leaves the buffer alone until the end.
            unsafe { fh.split_begin(SplitCollective::$kind, arguments) }
        }
        pub fn $end(fh: FileRef, buf: $buf, status: OutStatus) -> Result<()> {
            give_status(&status, &fh.split_end(SplitCollective::$kind, buf)?);
            Ok(())
        }
    )*};
}

split! {
    *mut u8, ReadAll, Individual: file_read_all_begin file_read_all_end;
    *const u8, WriteAll, Individual: file_write_all_begin file_write_all_end;
    *mut u8, ReadOrdered, Shared: file_read_ordered_begin file_read_ordered_end;
    *const u8, WriteOrdered, Shared: file_write_ordered_begin file_write_ordered_end;
}

/// Split collectives with an explicit offset: begin and end.
macro_rules! split_at {
    ($($buf:ty, $kind:ident: $begin:ident $end:ident;)*) => {$(
        pub fn $begin(fh: FileRef, arguments: Result<(i64, $buf, i64, DatatypeRef)>) -> Result<()> {
            let arguments = arguments.map(|(offset, buf, count, t)| {
                (Position::Explicit(offset), buffer(buf, count, t))
            });
            // SAFETY: the program leaves the buffer alone until the end.
            unsafe { fh.split_begin(SplitCollective::$kind, arguments) }
        }
        pub fn $end(fh: FileRef, buf: $buf, status: OutStatus) -> Result<()> {
            give_status(&status, &fh.split_end(SplitCollective::$kind, buf)?);
            Ok(())
        }
    )*};
}

split_at! {
    *mut u8, ReadAtAll: file_read_at_all_begin file_read_at_all_end;
    *const u8, WriteAtAll: file_write_at_all_begin file_write_at_all_end;
}

// Data representations.

/// The functions that the program has registered, with its extra state.
struct Functions {
    read: Option<ConversionFunction>,
    write: Option<ConversionFunction>,
    extent: ExtentFunction,
    state: *mut c_void,
}

// SAFETY: the program's pointer is only passed on to its functions.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

/// What a callback returned.
fn returned(code: i32) -> Result<()> {
    if code == constants::MPI_SUCCESS {
        return Ok(());
    }
    let text = format!("a function of the data representation returned {code}");
    let class = crate::codes::class_of_kind(Kind::Code(code));
    Err(Error::new(Kind::Code(code), text).of_class(class))
}

impl Functions {
    /// Calls a conversion function. `false`: there is none.
    fn convert(
        &self,
        function: Option<ConversionFunction>,
        memory: *mut u8,
        datatype: &Arc<Datatype>,
        count: i64,
        file: *mut u8,
        position: i64,
    ) -> Result<bool> {
        let Some(function) = function else {
            return Ok(false);
        };
        let (memory, file) = (memory.cast(), file.cast());
        let handle = CallbackHandle::of(datatype);
        let code = match function {
            ConversionFunction::Int(f) => {
                let count = i32::try_from(count).map_err(|_| {
                    err!(
                        Conversion,
                        "{count} elements are more than a conversion function with int counts \
                         takes: register one by MPI_Register_datarep_c"
                    )
                })?;
                // SAFETY: the program's function, called as the standard says.
                unsafe { f(memory, handle.handle(), count, file, position, self.state) }
            }
            // SAFETY: the program's function, called as the standard says.
            ConversionFunction::Count(f) => unsafe {
                f(memory, handle.handle(), count, file, position, self.state)
            },
        };
        returned(code).map(|()| true)
    }
}

impl RepresentationFunctions for Functions {
    fn extent(&self, datatype: &Arc<Datatype>) -> Result<i64> {
        let handle = CallbackHandle::of(datatype);
        let mut extent = 0;
        // SAFETY: the program's function, called as the standard says.
        returned(unsafe { (self.extent)(handle.handle(), &raw mut extent, self.state) })?;
        Ok(extent)
    }

    fn read(
        &self,
        memory: *mut u8,
        datatype: &Arc<Datatype>,
        count: i64,
        file: *const u8,
        position: i64,
    ) -> Result<bool> {
        let file = file.cast_mut();
        self.convert(self.read, memory, datatype, count, file, position)
    }

    fn write(
        &self,
        memory: *const u8,
        datatype: &Arc<Datatype>,
        count: i64,
        file: *mut u8,
        position: i64,
    ) -> Result<bool> {
        let memory = memory.cast_mut();
        self.convert(self.write, memory, datatype, count, file, position)
    }
}

pub fn register_datarep(
    datarep: &CStr,
    read_conversion_fn: Option<ConversionFunction>,
    write_conversion_fn: Option<ConversionFunction>,
    dtype_file_extent_fn: ExtentFunction,
    extra_state: *mut c_void,
) -> Result<()> {
    if datarep.count_bytes() >= constants::MPI_MAX_DATAREP_STRING {
        return Err(err!(
            Arg,
            "datarep has {} characters, but at most {} are allowed",
            datarep.count_bytes(),
            constants::MPI_MAX_DATAREP_STRING - 1
        ));
    }
    let functions = Functions {
        read: read_conversion_fn,
        write: write_conversion_fn,
        extent: dtype_file_extent_fn,
        state: extra_state,
    };
    file::register(&datarep.to_string_lossy(), Box::new(functions))
}
