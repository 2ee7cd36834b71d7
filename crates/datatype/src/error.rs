//! Why a datatype cannot be made or used.

/// Why a datatype cannot be made or used. The text names the argument and its value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TypeError {
    /// A count, blocklength or size that must not be negative is.
    #[error("{argument} is {value}, but must not be negative")]
    Negative {
        /// The argument's name, with its index if it is an array's element.
        argument: String,
        /// What it is.
        value: i64,
    },
    /// An argument with a value that the standard does not allow.
    #[error("{0}")]
    Argument(String),
    /// A predefined type that does not exist here, or a type of the wrong sort.
    #[error("{0}")]
    Unusable(String),
    /// Sizes or displacements beyond 64 bits.
    #[error("the datatype's {0} does not fit into 64 bits")]
    Overflow(&'static str),
    /// Bytes that are no encoded datatype.
    #[error("the bytes of an encoded datatype are malformed: {0}")]
    Malformed(&'static str),
    /// A value that the target representation cannot hold.
    #[error("{name} value {value} does not fit into the {bytes} bytes that external32 has for it")]
    Conversion {
        /// The basic type's name.
        name: &'static str,
        /// The value.
        value: i64,
        /// Bytes in external32.
        bytes: usize,
    },
}
