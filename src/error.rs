//! The one error type: what went wrong, where, and what would be right.

use std::path::PathBuf;

/// Everything that can stop a run. Each message fits on one line and names the flag, file or byte at fault.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that cannot work: exit code 2.
    #[error("{0}")]
    Config(String),
    /// A file whose content cannot be used.
    #[error("{path}: {message}", path = .path.display())]
    File {
        /// The file at fault.
        path: PathBuf,
        /// What is wrong and what would be right.
        message: String,
    },
    /// The operating system refused to read or write.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file or folder at fault.
        path: PathBuf,
        /// The system's own reason.
        source: std::io::Error,
    },
    /// The state of a run is no longer a number.
    #[error("{0}")]
    State(String),
    /// The backend cannot be used here.
    #[error("{0}")]
    Backend(String),
    /// Two backends gave different results: exit code 3.
    #[error("{0}")]
    Difference(String),
}

impl Error {
    /// A setting that cannot work.
    pub fn config(message: impl Into<String>) -> Self {
        Error::Config(message.into())
    }

    /// A file whose content cannot be used.
    pub fn file(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Error::File { path: path.into(), message: message.into() }
    }

    /// A failed read or write of `path`; made for `map_err`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Error::Io { path, source }
    }

    /// The process exit code: 2 for a wrong command line, 3 for a difference between backends, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Config(_) => 2,
            Error::Difference(_) => 3,
            _ => 1,
        }
    }
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;
