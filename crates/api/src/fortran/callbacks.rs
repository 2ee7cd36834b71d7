//! Interfaces of the procedures that programs pass, and of the predefined ones among them.

use super::Module;
use super::text::statement;

/// Interfaces of procedures that programs pass: name, arguments, declarations. `@` stands for the
/// type of the object's handle.
const CALLBACKS: &[(&str, &str, &[&str])] = &[
    (
        "User_function",
        "invec, inoutvec, len, datatype",
        &[
            "type(c_ptr), value :: invec, inoutvec",
            "integer :: len",
            "type(MPI_Datatype) :: datatype",
        ],
    ),
    (
        "User_function_c",
        "invec, inoutvec, len, datatype",
        &[
            "type(c_ptr), value :: invec, inoutvec",
            "integer(kind=MPI_COUNT_KIND) :: len",
            "type(MPI_Datatype) :: datatype",
        ],
    ),
    (
        "Grequest_query_function",
        "extra_state, status, ierror",
        &[
            "integer(kind=MPI_ADDRESS_KIND) :: extra_state",
            "type(MPI_Status) :: status",
            "integer :: ierror",
        ],
    ),
    (
        "Grequest_free_function",
        "extra_state, ierror",
        &[
            "integer(kind=MPI_ADDRESS_KIND) :: extra_state",
            "integer :: ierror",
        ],
    ),
    (
        "Grequest_cancel_function",
        "extra_state, complete, ierror",
        &[
            "integer(kind=MPI_ADDRESS_KIND) :: extra_state",
            "logical :: complete",
            "integer :: ierror",
        ],
    ),
    (
        "Datarep_extent_function",
        "datatype, extent, extra_state, ierror",
        &[
            "type(MPI_Datatype) :: datatype",
            "integer(kind=MPI_ADDRESS_KIND) :: extent, extra_state",
            "integer :: ierror",
        ],
    ),
    (
        "Datarep_conversion_function",
        "userbuf, datatype, count, filebuf, position, extra_state, ierror",
        &[
            "type(c_ptr), value :: userbuf, filebuf",
            "type(MPI_Datatype) :: datatype",
            "integer :: count, ierror",
            "integer(kind=MPI_OFFSET_KIND) :: position",
            "integer(kind=MPI_ADDRESS_KIND) :: extra_state",
        ],
    ),
    (
        "Datarep_conversion_function_c",
        "userbuf, datatype, count, filebuf, position, extra_state, ierror",
        &[
            "type(c_ptr), value :: userbuf, filebuf",
            "type(MPI_Datatype) :: datatype",
            "integer(kind=MPI_COUNT_KIND) :: count",
            "integer(kind=MPI_OFFSET_KIND) :: position",
            "integer(kind=MPI_ADDRESS_KIND) :: extra_state",
            "integer :: ierror",
        ],
    ),
];

/// The arguments of a copy and of a delete function of attributes, by the word for the object.
fn attribute_function(word: &str, copy: bool) -> (String, Vec<String>) {
    let names = if copy {
        format!(
            "old{word}, {word}_keyval, extra_state, attribute_val_in, attribute_val_out, flag, \
             ierror"
        )
    } else {
        let object = if word == "type" { "datatype" } else { word };
        format!("{object}, {word}_keyval, attribute_val, extra_state, ierror")
    };
    let object = names.split(',').next().unwrap_or_default();
    let values = match copy {
        true => "extra_state, attribute_val_in, attribute_val_out",
        false => "attribute_val, extra_state",
    };
    let mut declarations = vec![
        format!("@ :: {object}"),
        format!("integer :: {word}_keyval, ierror"),
        format!("integer(kind=MPI_ADDRESS_KIND) :: {values}"),
    ];
    if copy {
        declarations.push("logical :: flag".into());
    }
    (names, declarations)
}

/// Objects that have attributes: the word in names, and the C type of the handle.
const WITH_ATTRIBUTES: [(&str, &str); 3] = [
    ("comm", "MPI_Comm"),
    ("type", "MPI_Datatype"),
    ("win", "MPI_Win"),
];

/// The abstract interfaces.
pub fn callbacks(out: &mut String) {
    *out += "\n  abstract interface\n";
    for (name, arguments, declarations) in CALLBACKS {
        let lines: Vec<String> = declarations.iter().map(|d| (*d).to_string()).collect();
        subroutine(out, &format!("MPI_{name}"), arguments, &lines, true);
    }
    for (word, handle) in WITH_ATTRIBUTES {
        let ty = format!("type({handle})");
        let mut title = word.to_string();
        title[..1].make_ascii_uppercase();
        for (copy, what) in [(true, "copy"), (false, "delete")] {
            let (names, lines) = attribute_function(word, copy);
            let lines: Vec<String> = lines.iter().map(|l| l.replace('@', &ty)).collect();
            let name = format!("MPI_{title}_{what}_attr_function");
            subroutine(out, &name, &names, &lines, true);
        }
    }
    for object in ["Comm", "Win", "File", "Session"] {
        let word = object.to_lowercase();
        let lines = [
            format!("type(MPI_{object}) :: {word}"),
            "integer :: error_code".into(),
        ];
        let name = format!("MPI_{object}_errhandler_function");
        subroutine(out, &name, &format!("{word}, error_code"), &lines, true);
    }
    *out += "  end interface\n";
}

/// MPI_COMM_DUP_FN and its like: external procedures, which programs pass by name.
pub fn predefined_functions(out: &mut String, module: Module) {
    let f08 = module == Module::MpiF08;
    *out += "\n  interface\n";
    for (word, handle) in WITH_ATTRIBUTES {
        let ty = if f08 {
            format!("type({handle})")
        } else {
            "integer".into()
        };
        for what in ["DUP", "NULL_COPY", "NULL_DELETE"] {
            let (names, lines) = attribute_function(word, what != "NULL_DELETE");
            let lines: Vec<String> = lines.iter().map(|l| l.replace('@', &ty)).collect();
            let name = format!("MPI_{}_{what}_FN", word.to_uppercase());
            subroutine(out, &name, &names, &lines, true);
        }
    }
    for suffix in ["", "_C"] {
        let of = format!("Datarep_conversion_function{}", suffix.to_lowercase());
        let found = CALLBACKS.iter().find(|c| c.0 == of);
        let Some((_, names, lines)) = found.filter(|_| f08) else {
            continue;
        };
        let lines: Vec<String> = lines.iter().map(|l| (*l).to_string()).collect();
        let name = format!("MPI_CONVERSION_FN_NULL{suffix}");
        subroutine(out, &name, names, &lines, true);
    }
    *out += "  end interface\n";
    if !f08 {
        *out += "  external MPI_CONVERSION_FN_NULL, MPI_DUP_FN, MPI_NULL_COPY_FN, \
                 MPI_NULL_DELETE_FN\n";
    }
}

fn subroutine(out: &mut String, name: &str, arguments: &str, lines: &[String], imports: bool) {
    *out += &statement(4, &format!("subroutine {name}({arguments})"));
    *out += if imports { "      import\n" } else { "" };
    for line in lines {
        *out += &statement(6, line);
    }
    *out += &format!("    end subroutine {name}\n");
}
