//! Why a rank could not find its job.

/// Why a rank could not find its job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The environment names a launcher that cannot be reached.
    #[error("{0}")]
    Launcher(String),
    /// A system call was refused.
    #[error("{attempted}: {cause}; {advice}")]
    Refused {
        /// The step that failed.
        attempted: String,
        /// The system's error.
        cause: std::io::Error,
        /// Advice to the user.
        advice: &'static str,
    },
}
