//! Writing files so that a reader never meets half of one, and reading them without surprises.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::error::{Error, Result};

/// Largest file that [`read_all`] takes, in bytes.
pub const MAX_FILE: u64 = 1 << 30;
/// Longest name of a texture in bytes: with what is added to it, it fits a file system.
const MAX_NAME: usize = 200;

/// Writes `path` as a whole or not at all: `write` fills a temporary file in the same folder, which then takes the name.
///
/// The writer is buffered. A file already there stays untouched until the new one is complete; permissions are those of
/// any new file (0666 less the umask).
pub fn write_atomic(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let pending = Pending::create(path)?;
    write(&mut pending.sink()).map_err(Error::io(path))?;
    pending.finish()
}

/// A file on its way: what goes to its [`Sink`]s takes the name with [`Pending::finish`], and vanishes without.
#[derive(Debug)]
pub struct Pending {
    sink: Sink,
    temporary: tempfile::TempPath,
    path: PathBuf,
}

/// The buffered writer of a [`Pending`] file; clones write to the same place.
#[derive(Clone, Debug)]
pub struct Sink(Rc<RefCell<BufWriter<File>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

impl Pending {
    /// A temporary file in the folder of `path`.
    ///
    /// # Errors
    /// A folder that cannot be written to; a `path` that is a folder.
    pub fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(Error::file(path, "is a folder; name a file to write"));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".ntc-es-").suffix(".tmp");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666)); // open(2) takes the umask off
        }
        let make = |p: &Path| File::options().write(true).create_new(true).open(p);
        let (file, temporary) = builder.make_in(folder_of(path), make).map_err(Error::io(path))?.into_parts();
        let sink = Sink(Rc::new(RefCell::new(BufWriter::new(file))));
        Ok(Pending { sink, temporary, path: path.to_owned() })
    }

    /// Where to write.
    pub fn sink(&self) -> Sink {
        self.sink.clone()
    }

    /// Gives the file its name.
    pub fn finish(self) -> Result<()> {
        let Pending { mut sink, temporary, path } = self;
        sink.flush().map_err(Error::io(&path))?;
        drop(sink);
        temporary.persist(&path).map_err(|e| Error::io(&path)(e.error))
    }
}

/// The folder that `path` lies in; `.` for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The last part of `path` for messages and records: never a folder.
pub fn base_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// A name that can be a file's: what separates folders or does not print becomes `_`.
pub fn safe_name(name: &str) -> String {
    let odd = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
    let mut safe: String = name.chars().map(|c| if odd(c) { '_' } else { c }).collect();
    while safe.len() > MAX_NAME {
        safe.pop();
    }
    if safe.is_empty() || safe.bytes().all(|b| b == b'.') { "texture".into() } else { safe }
}

/// All bytes of `path`. A folder, an empty file and one above [`MAX_FILE`] are refused by name.
pub fn read_all(path: &Path) -> Result<Vec<u8>> {
    read_up_to(path, MAX_FILE)
}

/// As [`read_all`], with a limit of `most` bytes.
pub fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>> {
    if path.is_dir() {
        return Err(Error::file(path, "is a folder; name a file"));
    }
    let file = File::open(path).map_err(Error::io(path))?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(Error::io(path))?;
    match bytes.len() as u64 {
        0 => Err(Error::file(path, "is empty")),
        n if n > most => Err(Error::file(path, format!("is larger than the limit of {most} bytes"))),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write_atomic(&path, |w| w.write_all(b"old")).unwrap();
        let failed = write_atomic(&path, |w| {
            w.write_all(b"new")?;
            Err(io::Error::other("stopped"))
        });
        assert!(failed.unwrap_err().to_string().ends_with("a.txt: stopped"));
        assert_eq!(read_all(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        write_atomic(&path, |w| w.write_all(b"new")).unwrap();
        assert_eq!(read_all(&path).unwrap(), b"new");
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_a_plain_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        std::fs::write(folder.path().join("plain"), b"x").unwrap();
        write_atomic(&folder.path().join("atomic"), |w| w.write_all(b"x")).unwrap();
        assert_eq!(mode("atomic"), mode("plain"));
    }

    #[test]
    fn what_cannot_be_read_or_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty");
        std::fs::write(&empty, b"").unwrap();
        assert!(read_all(&empty).unwrap_err().to_string().contains("empty: is empty"));
        assert!(read_all(folder.path()).unwrap_err().to_string().contains("is a folder"));
        assert!(read_all(&folder.path().join("none")).unwrap_err().to_string().contains("none: "));
        assert!(write_atomic(folder.path(), |_| Ok(())).unwrap_err().to_string().contains("is a folder"));
        assert!(write_atomic(&folder.path().join("no/file"), |_| Ok(())).unwrap_err().to_string().contains("no/file"));
    }

    #[test]
    fn bare_names_lie_in_the_current_folder() {
        assert_eq!(folder_of(Path::new("a.png")), Path::new("."));
        assert_eq!(folder_of(Path::new("out/a.png")), Path::new("out"));
        assert_eq!(base_name(Path::new("out/a.png")), "a.png");
    }

    #[test]
    fn names_become_safe() {
        assert_eq!(safe_name("a/b\\c\n"), "a_b_c_");
        assert_eq!((safe_name("..").as_str(), safe_name("").as_str()), ("texture", "texture"));
        assert_eq!(safe_name(&"\u{e4}".repeat(150)).len(), 200);
    }
}
