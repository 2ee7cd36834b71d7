//! Error classes, codes and strings (MPI 5.0 §9.4, §9.5).
//!
//! A returned code is its class plus 64 times the number of the error's text. So MPI_Error_string
//! can say which argument was wrong. The texts of the latest errors are kept. An older code has the
//! text of its class. Classes, codes and strings that a program adds are above MPI_ERR_LASTCODE.

use crate::constants::*;
use ferry_mpi::{Error, Kind, Result, err};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Every class is below this number. A code modulo it is the code's class.
const CLASS_STRIDE: i32 = 64;
/// Number of error texts kept. With more, codes would exceed MPI_ERR_LASTCODE.
const TEXTS_MAX: usize = 254;
/// The text number whose codes would collide with those of the tool interface. It is skipped.
const TOOL_CODES_TEXT: i32 = MPI_T_ERR_CANNOT_INIT / CLASS_STRIDE;

/// The class of a kind of error.
pub fn class_of_kind(kind: Kind) -> i32 {
    use Kind::*;
    match kind {
        Buffer => MPI_ERR_BUFFER,
        Count => MPI_ERR_COUNT,
        Type => MPI_ERR_TYPE,
        Tag => MPI_ERR_TAG,
        Comm => MPI_ERR_COMM,
        Rank => MPI_ERR_RANK,
        Request => MPI_ERR_REQUEST,
        Root => MPI_ERR_ROOT,
        Group => MPI_ERR_GROUP,
        Op => MPI_ERR_OP,
        Topology => MPI_ERR_TOPOLOGY,
        Dims => MPI_ERR_DIMS,
        Arg => MPI_ERR_ARG,
        Unknown => MPI_ERR_UNKNOWN,
        Truncate => MPI_ERR_TRUNCATE,
        Other => MPI_ERR_OTHER,
        Intern => MPI_ERR_INTERN,
        InStatus => MPI_ERR_IN_STATUS,
        Pending => MPI_ERR_PENDING,
        Access => MPI_ERR_ACCESS,
        Amode => MPI_ERR_AMODE,
        Assert => MPI_ERR_ASSERT,
        BadFile => MPI_ERR_BAD_FILE,
        Base => MPI_ERR_BASE,
        Conversion => MPI_ERR_CONVERSION,
        Disp => MPI_ERR_DISP,
        DupDatarep => MPI_ERR_DUP_DATAREP,
        FileExists => MPI_ERR_FILE_EXISTS,
        FileInUse => MPI_ERR_FILE_IN_USE,
        File => MPI_ERR_FILE,
        InfoKey => MPI_ERR_INFO_KEY,
        InfoNokey => MPI_ERR_INFO_NOKEY,
        InfoValue => MPI_ERR_INFO_VALUE,
        Info => MPI_ERR_INFO,
        Io => MPI_ERR_IO,
        Keyval => MPI_ERR_KEYVAL,
        Locktype => MPI_ERR_LOCKTYPE,
        Name => MPI_ERR_NAME,
        NoMem => MPI_ERR_NO_MEM,
        NotSame => MPI_ERR_NOT_SAME,
        NoSpace => MPI_ERR_NO_SPACE,
        NoSuchFile => MPI_ERR_NO_SUCH_FILE,
        Port => MPI_ERR_PORT,
        Quota => MPI_ERR_QUOTA,
        ReadOnly => MPI_ERR_READ_ONLY,
        RmaConflict => MPI_ERR_RMA_CONFLICT,
        RmaSync => MPI_ERR_RMA_SYNC,
        Service => MPI_ERR_SERVICE,
        Size => MPI_ERR_SIZE,
        Spawn => MPI_ERR_SPAWN,
        UnsupportedDatarep => MPI_ERR_UNSUPPORTED_DATAREP,
        UnsupportedOperation => MPI_ERR_UNSUPPORTED_OPERATION,
        Win => MPI_ERR_WIN,
        RmaRange => MPI_ERR_RMA_RANGE,
        RmaAttach => MPI_ERR_RMA_ATTACH,
        RmaShared => MPI_ERR_RMA_SHARED,
        RmaFlavor => MPI_ERR_RMA_FLAVOR,
        Session => MPI_ERR_SESSION,
        ProcAborted => MPI_ERR_PROC_ABORTED,
        ValueTooLarge => MPI_ERR_VALUE_TOO_LARGE,
        ErrhandlerArg => MPI_ERR_ERRHANDLER,
        Abi => MPI_ERR_ABI,
        Code(code) => class_of(code).unwrap_or(MPI_ERR_UNKNOWN),
        Class(class) => class,
    }
}

/// Name and meaning of every predefined class, by its number.
#[rustfmt::skip]
const CLASSES: [(&str, &str); 63] = [
    ("MPI_SUCCESS", "no error"),
    ("MPI_ERR_BUFFER", "a buffer cannot be what the call was given"),
    ("MPI_ERR_COUNT", "a count is out of range"),
    ("MPI_ERR_TYPE", "a datatype is invalid, not committed, or unfit for the call"),
    ("MPI_ERR_TAG", "a tag is out of range"),
    ("MPI_ERR_COMM", "a communicator is invalid or unfit for the call"),
    ("MPI_ERR_RANK", "a rank is not in the group"),
    ("MPI_ERR_REQUEST", "a request or message handle is invalid"),
    ("MPI_ERR_ROOT", "the root is not in the group"),
    ("MPI_ERR_GROUP", "a group is invalid"),
    ("MPI_ERR_OP", "a reduction operation is invalid or unfit for the datatype"),
    ("MPI_ERR_TOPOLOGY", "the communicator's topology is missing or of another kind"),
    ("MPI_ERR_DIMS", "the dimensions do not fit"),
    ("MPI_ERR_ARG", "an argument is invalid"),
    ("MPI_ERR_UNKNOWN", "an error of unknown kind"),
    ("MPI_ERR_TRUNCATE", "a message was longer than the buffer it was received into"),
    ("MPI_ERR_OTHER", "an error that no class is made for"),
    ("MPI_ERR_INTERN", "an error inside the library"),
    ("MPI_ERR_PENDING", "the operation has neither failed nor completed"),
    ("MPI_ERR_IN_STATUS", "the errors are in the statuses"),
    ("MPI_ERR_ACCESS", "no permission"),
    ("MPI_ERR_AMODE", "the access mode is invalid"),
    ("MPI_ERR_ASSERT", "an assertion is invalid"),
    ("MPI_ERR_BAD_FILE", "a file's name is invalid"),
    ("MPI_ERR_BASE", "the base of a window is invalid"),
    ("MPI_ERR_CONVERSION", "data could not be converted"),
    ("MPI_ERR_DISP", "a displacement is invalid"),
    ("MPI_ERR_DUP_DATAREP", "the data representation is defined already"),
    ("MPI_ERR_FILE_EXISTS", "the file exists already"),
    ("MPI_ERR_FILE_IN_USE", "the file is in use"),
    ("MPI_ERR_FILE", "a file handle is invalid"),
    ("MPI_ERR_INFO_KEY", "an info key is empty or too long"),
    ("MPI_ERR_INFO_NOKEY", "the info has no such key"),
    ("MPI_ERR_INFO_VALUE", "an info value is missing or too long"),
    ("MPI_ERR_INFO", "an info is invalid"),
    ("MPI_ERR_IO", "input or output failed"),
    ("MPI_ERR_KEYVAL", "an attribute key is invalid"),
    ("MPI_ERR_LOCKTYPE", "the type of a lock is invalid"),
    ("MPI_ERR_NAME", "the service name is not published"),
    ("MPI_ERR_NO_MEM", "memory is exhausted"),
    ("MPI_ERR_NOT_SAME", "an argument differs among the processes"),
    ("MPI_ERR_NO_SPACE", "the storage is full"),
    ("MPI_ERR_NO_SUCH_FILE", "the file does not exist"),
    ("MPI_ERR_PORT", "the port is invalid"),
    ("MPI_ERR_QUOTA", "the storage quota is exceeded"),
    ("MPI_ERR_READ_ONLY", "the file or file system is read-only"),
    ("MPI_ERR_RMA_ATTACH", "the memory cannot be attached"),
    ("MPI_ERR_RMA_CONFLICT", "accesses to a window conflict"),
    ("MPI_ERR_RMA_RANGE", "the target memory is not part of the window"),
    ("MPI_ERR_RMA_SHARED", "the memory cannot be shared"),
    ("MPI_ERR_RMA_SYNC", "the synchronisation of a window is wrong"),
    ("MPI_ERR_SERVICE", "the service name cannot be withdrawn"),
    ("MPI_ERR_SIZE", "a size is invalid"),
    ("MPI_ERR_SPAWN", "processes could not be started"),
    ("MPI_ERR_UNSUPPORTED_DATAREP", "the data representation is not supported"),
    ("MPI_ERR_UNSUPPORTED_OPERATION", "the operation is not supported"),
    ("MPI_ERR_WIN", "a window is invalid"),
    ("MPI_ERR_RMA_FLAVOR", "the window is of the wrong flavour"),
    ("MPI_ERR_PROC_ABORTED", "a peer process has aborted"),
    ("MPI_ERR_VALUE_TOO_LARGE", "a value does not fit its place"),
    ("MPI_ERR_SESSION", "a session is invalid"),
    ("MPI_ERR_ERRHANDLER", "an error handler is invalid"),
    ("MPI_ERR_ABI", "the ABI's rules are broken"),
];

/// Name and meaning of the tool interface's codes, from 1001 on.
#[rustfmt::skip]
const TOOL_CODES: [(&str, &str); 18] = [
    ("MPI_T_ERR_CANNOT_INIT", "the tool interface cannot be initialised"),
    ("MPI_T_ERR_NOT_ACCESSIBLE", "it cannot be accessed"),
    ("MPI_T_ERR_NOT_INITIALIZED", "the tool interface is not initialised"),
    ("MPI_T_ERR_NOT_SUPPORTED", "it is not supported"),
    ("MPI_T_ERR_MEMORY", "memory is exhausted"),
    ("MPI_T_ERR_INVALID", "an argument is invalid"),
    ("MPI_T_ERR_INVALID_INDEX", "the index is out of range"),
    ("MPI_T_ERR_INVALID_ITEM", "the item is out of range"),
    ("MPI_T_ERR_INVALID_SESSION", "the session is invalid"),
    ("MPI_T_ERR_INVALID_HANDLE", "the handle is invalid"),
    ("MPI_T_ERR_INVALID_NAME", "the name is unknown"),
    ("MPI_T_ERR_OUT_OF_HANDLES", "there are no handles left"),
    ("MPI_T_ERR_OUT_OF_SESSIONS", "there are no sessions left"),
    ("MPI_T_ERR_CVAR_SET_NOT_NOW", "the variable cannot be set now"),
    ("MPI_T_ERR_CVAR_SET_NEVER", "the variable can never be set"),
    ("MPI_T_ERR_PVAR_NO_WRITE", "the variable cannot be written or reset"),
    ("MPI_T_ERR_PVAR_NO_STARTSTOP", "the variable cannot be started or stopped"),
    ("MPI_T_ERR_PVAR_NO_ATOMIC", "the variable cannot be read and reset at once"),
];

/// The name of a predefined class.
pub fn class_name(class: i32) -> &'static str {
    usize::try_from(class)
        .ok()
        .and_then(|c| CLASSES.get(c))
        .map_or("an error class of the program", |c| c.0)
}

/// A class or code added by the program.
#[derive(Clone, Debug)]
struct Added {
    number: i32,
    /// Its class. A class has its own number here.
    class: i32,
    text: Option<String>,
}

#[derive(Default)]
struct Codes {
    /// The texts of the latest errors, with their classes.
    texts: Vec<(i32, String)>,
    next_text: usize,
    added: Vec<Added>,
}

static CODES: Mutex<Codes> = Mutex::new(Codes {
    texts: Vec::new(),
    next_text: 0,
    added: Vec::new(),
});

fn codes() -> MutexGuard<'static, Codes> {
    CODES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The slot of a code's text. `None` if the code has no text of its own.
fn text_number(code: i32) -> Option<usize> {
    let number = code / CLASS_STRIDE;
    ((1..=TEXTS_MAX as i32 + 1).contains(&number) && number != TOOL_CODES_TEXT)
        .then(|| slot_of(number))
}

/// The text number of a slot. Skips that of the tool interface.
fn number_of(slot: usize) -> i32 {
    let number = slot as i32 + 1;
    if number >= TOOL_CODES_TEXT {
        number + 1
    } else {
        number
    }
}

fn slot_of(number: i32) -> usize {
    (if number > TOOL_CODES_TEXT {
        number - 2
    } else {
        number - 1
    }) as usize
}

/// The code to return for an error. `text` is its MPI_Error_string.
pub fn code(kind: Kind, text: String) -> i32 {
    let class = match kind {
        Kind::Code(code) => return code,
        // Only predefined classes have codes with texts.
        Kind::Class(class) if !(1..CLASSES.len() as i32).contains(&class) => return class,
        // Programs compare these two with the code.
        Kind::InStatus | Kind::Pending => return class_of_kind(kind),
        _ => class_of_kind(kind),
    };
    let mut codes = codes();
    let known = codes.texts.iter().position(|t| t.0 == class && t.1 == text);
    let slot = known.unwrap_or_else(|| {
        let slot = codes.next_text;
        codes.next_text = (slot + 1) % TEXTS_MAX;
        if slot < codes.texts.len() {
            codes.texts[slot] = (class, text);
        } else {
            codes.texts.push((class, text));
        }
        slot
    });
    class + CLASS_STRIDE * number_of(slot)
}

/// The class of a code. `None` if there is no such code.
pub fn class_of(code: i32) -> Option<i32> {
    if (0..CLASSES.len() as i32).contains(&code)
        || (MPI_T_ERR_CANNOT_INIT..=MPI_T_ERR_PVAR_NO_ATOMIC).contains(&code)
    {
        return Some(code);
    }
    if (0..=MPI_ERR_LASTCODE).contains(&code) {
        let class = code % CLASS_STRIDE;
        return (text_number(code).is_some() && class > 0 && (class as usize) < CLASSES.len())
            .then_some(class);
    }
    codes()
        .added
        .iter()
        .find(|a| a.number == code)
        .map(|a| a.class)
}

/// The text of a code. `None` if there is no such code.
pub fn text_of(code: i32) -> Option<String> {
    let class = class_of(code)?;
    if code > MPI_ERR_LASTCODE {
        return Some(
            codes()
                .added
                .iter()
                .find(|a| a.number == code)
                .and_then(|a| a.text.clone())
                .unwrap_or_default(),
        );
    }
    if let Some(own) = TOOL_CODES
        .get((code - MPI_T_ERR_CANNOT_INIT) as usize)
        .filter(|_| code >= MPI_T_ERR_CANNOT_INIT)
        && code <= MPI_T_ERR_PVAR_NO_ATOMIC
    {
        return Some(format!("{}: {}", own.0, own.1));
    }
    let (name, meaning) = CLASSES[class as usize];
    if let Some(slot) = text_number(code)
        && let Some((of, text)) = codes().texts.get(slot)
        && *of == class
    {
        return Some(format!("{name}: {text}"));
    }
    Some(format!("{name}: {meaning}"))
}

/// The highest number in use (the attribute MPI_LASTUSEDCODE).
pub fn last_used() -> i32 {
    codes()
        .added
        .iter()
        .map(|a| a.number)
        .max()
        .unwrap_or(MPI_ERR_LASTCODE)
        .max(MPI_ERR_LASTCODE)
}

/// Adds a class (MPI_Add_error_class).
pub fn add_class() -> Result<i32> {
    add(None)
}

/// Adds a code to a class (MPI_Add_error_code).
pub fn add_code(class: i32) -> Result<i32> {
    add(Some(known_class(class)?))
}

/// Numbers are not reused after removal, because a stale one must not get another meaning.
fn add(class: Option<i32>) -> Result<i32> {
    static NEXT: std::sync::atomic::AtomicI32 =
        std::sync::atomic::AtomicI32::new(MPI_ERR_LASTCODE + 1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    if number <= MPI_ERR_LASTCODE {
        return Err(err!(NoMem, "there are no error codes left"));
    }
    codes().added.push(Added {
        number,
        class: class.unwrap_or(number),
        text: None,
    });
    Ok(number)
}

fn known_class(class: i32) -> Result<i32> {
    match class_of(class) {
        Some(of) if of == class => Ok(class),
        _ => Err(err!(Arg, "errorclass is {class}, which is no error class")),
    }
}

/// Sets or removes the text of a code that the program added.
pub fn set_text(code: i32, text: Option<String>) -> Result<()> {
    let mut codes = codes();
    match codes.added.iter_mut().find(|a| a.number == code) {
        Some(added) => {
            added.text = text;
            Ok(())
        }
        None => Err(not_added(code, "errorcode")),
    }
}

fn not_added(number: i32, name: &str) -> Error {
    err!(
        Arg,
        "{name} is {number}, which MPI_Add_error_class and MPI_Add_error_code have not made"
    )
}

/// Removes a class or code. Its text must have been removed before (MPI 5.0 §9.5).
fn remove(added: &mut Vec<Added>, at: usize) -> Result<()> {
    if added[at].text.is_some() {
        let number = added[at].number;
        return Err(err!(
            Other,
            "{number} still has a text: remove that first (MPI_Remove_error_string)"
        ));
    }
    added.remove(at);
    Ok(())
}

/// Removes a class (MPI_Remove_error_class). None of its codes may be left.
pub fn remove_class(class: i32) -> Result<()> {
    let mut codes = codes();
    let at = codes
        .added
        .iter()
        .position(|a| a.number == class && a.class == class)
        .ok_or_else(|| not_added(class, "errorclass"))?;
    if let Some(code) = codes
        .added
        .iter()
        .find(|a| a.class == class && a.number != class)
    {
        return Err(err!(
            Other,
            "errorclass {class} still has codes, for example {}",
            code.number
        ));
    }
    remove(&mut codes.added, at)
}

/// Removes a code (MPI_Remove_error_code).
pub fn remove_code(code: i32) -> Result<()> {
    let mut codes = codes();
    let at = codes
        .added
        .iter()
        .position(|a| a.number == code && a.class != code)
        .ok_or_else(|| not_added(code, "errorcode"))?;
    remove(&mut codes.added, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_own_name_in_its_place() {
        for (number, (name, _)) in CLASSES.iter().enumerate() {
            assert_eq!(
                ferry_api::constants::value(name),
                Some(number as i64),
                "{name}"
            );
        }
        for (at, (name, _)) in TOOL_CODES.iter().enumerate() {
            assert_eq!(
                ferry_api::constants::value(name),
                Some(1001 + at as i64),
                "{name}"
            );
        }
    }

    #[test]
    fn codes_keep_class_and_text() {
        let code = code(
            Kind::Rank,
            "dest is 7, but the communicator has 4 ranks".into(),
        );
        assert!(code > 0 && code <= MPI_ERR_LASTCODE);
        assert_eq!(class_of(code), Some(MPI_ERR_RANK));
        assert_eq!(
            text_of(code).unwrap(),
            "MPI_ERR_RANK: dest is 7, but the communicator has 4 ranks"
        );
        assert_eq!(super::code(Kind::InStatus, "x".into()), MPI_ERR_IN_STATUS);
        assert_eq!(super::code(Kind::Code(77_777), "x".into()), 77_777);
        assert_eq!(super::code(Kind::Class(77_777), "x".into()), 77_777);
        let told = super::code(Kind::Class(MPI_ERR_CONVERSION), "on rank 1".into());
        assert_eq!(class_of(told), Some(MPI_ERR_CONVERSION));
        assert_eq!(text_of(told).unwrap(), "MPI_ERR_CONVERSION: on rank 1");
    }

    #[test]
    fn numbers_of_texts_miss_the_tool_codes_and_stay_below_the_last_code() {
        for slot in 0..TEXTS_MAX {
            let number = number_of(slot);
            assert_eq!(slot_of(number), slot);
            for class in 1..CLASS_STRIDE {
                let code = class + CLASS_STRIDE * number;
                assert!(code <= MPI_ERR_LASTCODE && !(1001..=1018).contains(&code));
                assert_eq!(text_number(code), Some(slot));
            }
        }
    }

    #[test]
    fn old_texts_make_room() {
        let first = code(Kind::Io, "the first".into());
        for n in 0..TEXTS_MAX * 2 {
            code(Kind::Quota, format!("text {n}"));
        }
        assert_eq!(class_of(first), Some(MPI_ERR_IO));
        assert_eq!(
            text_of(first).unwrap(),
            "MPI_ERR_IO: input or output failed"
        );
    }

    #[test]
    fn programs_add_and_remove() {
        let class = add_class().unwrap();
        assert!(class > MPI_ERR_LASTCODE);
        let code = add_code(class).unwrap();
        assert!(last_used() >= code);
        assert_eq!(class_of(code), Some(class));
        assert_eq!(text_of(code).as_deref(), Some(""));
        set_text(code, Some("mine".into())).unwrap();
        assert_eq!(text_of(code).as_deref(), Some("mine"));
        assert!(remove_class(class).is_err());
        assert!(remove_code(class).is_err());
        assert!(remove_code(code).is_err(), "its text comes first");
        set_text(code, None).unwrap();
        remove_code(code).unwrap();
        remove_class(class).unwrap();
        assert_eq!(class_of(code), None);
        assert!(set_text(MPI_ERR_RANK, None).is_err());
        assert!(add_code(1_000_000).is_err());
        assert_eq!(class_of(-1), None);
        assert_eq!(class_of(64 * 15 + 60), None);
    }
}
