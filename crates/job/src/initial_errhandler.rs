//! The error handler with which a process begins (MPI 5.0 §11.8.4): its names, and the variable
//! that carries one from mpiexec or MPI_Comm_spawn to the rank.

/// A predefined error handler as the initial one of a process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum InitialErrhandler {
    /// MPI_ERRORS_ARE_FATAL.
    #[default]
    Fatal,
    /// MPI_ERRORS_ABORT.
    Abort,
    /// MPI_ERRORS_RETURN.
    Return,
}

impl InitialErrhandler {
    /// The variable that holds the name of one.
    pub const VARIABLE: &str = "FERRY_INITIAL_ERRHANDLER";

    const ALL: [InitialErrhandler; 3] = [
        InitialErrhandler::Fatal,
        InitialErrhandler::Abort,
        InitialErrhandler::Return,
    ];

    /// Its name in options, infos and the variable.
    pub fn name(self) -> &'static str {
        match self {
            InitialErrhandler::Fatal => "mpi_errors_are_fatal",
            InitialErrhandler::Abort => "mpi_errors_abort",
            InitialErrhandler::Return => "mpi_errors_return",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<InitialErrhandler> {
        Self::ALL.into_iter().find(|handler| handler.name() == name)
    }

    /// All names, for messages.
    pub fn names() -> String {
        Self::ALL.map(InitialErrhandler::name).join(", ")
    }

    /// The one that the environment names: MPI_ERRORS_ARE_FATAL if it names none.
    ///
    /// # Errors
    /// One line that says what the variable holds and what it may.
    pub fn from_environment() -> Result<InitialErrhandler, String> {
        match std::env::var_os(Self::VARIABLE) {
            Some(value) => Self::from_variable(&value.to_string_lossy()),
            None => Ok(InitialErrhandler::default()),
        }
    }

    /// The one that this value of the variable names. An empty value counts as none.
    fn from_variable(value: &str) -> Result<InitialErrhandler, String> {
        if value.is_empty() {
            return Ok(InitialErrhandler::default());
        }
        Self::from_name(value).ok_or_else(|| {
            format!(
                "{} is {value:?}; what can be chosen is {}",
                Self::VARIABLE,
                Self::names()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_variable_is_a_name_or_an_error_that_lists_the_names() {
        for handler in InitialErrhandler::ALL {
            assert_eq!(
                InitialErrhandler::from_variable(handler.name()),
                Ok(handler)
            );
        }
        assert_eq!(
            InitialErrhandler::from_variable(""),
            Ok(InitialErrhandler::Fatal)
        );
        assert_eq!(
            InitialErrhandler::from_variable("MPI_ERRORS_RETURN"),
            Err(
                "FERRY_INITIAL_ERRHANDLER is \"MPI_ERRORS_RETURN\"; what can be chosen is \
                 mpi_errors_are_fatal, mpi_errors_abort, mpi_errors_return"
                    .into()
            )
        );
    }
}
