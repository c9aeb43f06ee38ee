//! Kernels from source to what a device loads: specialised by -D, compiled by NVRTC, kept on disk by content.

use crate::error::{Error, Result};
use crate::files::{read_all, write_atomic};
use cudarc::nvrtc::{Ptx, result, sys};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        /// Every kernel source by name.
        const SOURCES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../../kernels/", $name)))),*];
    };
}

sources!(
    "compat.cuh",
    "math.cuh",
    "noise.cuh",
    "scene.cuh",
    "mlp.cuh",
    "tile.cuh",
    "minibatch.cuh",
    "noise.cu",
    "adam.cu",
    "evaluate.cu",
    "decoder_es.cu",
    "decoder_fd.cu",
    "latent_es.cu",
    "selector_search.cu",
    "gauss_newton.cu",
);

/// Options that the promise of equal bits rests on (DESIGN section 5): no contraction, IEEE division and square root,
/// denormals kept.
const OPTIONS: [&str; 5] = ["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// Compiles for one kind of device.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// Compute capability.
    pub capability: (i32, i32),
    /// What the compiler is, from [`super::probe::Found`].
    pub identity: String,
}

/// A compiled file; several backends of one process share it.
#[derive(Clone, Debug)]
pub struct Image {
    bytes: Arc<Vec<u8>>,
    is_ptx: bool,
}

impl Image {
    /// As cudarc takes it.
    pub fn load(&self) -> Ptx {
        if self.is_ptx {
            Ptx::from_src(String::from_utf8_lossy(&self.bytes).trim_end_matches('\0').to_owned())
        } else {
            Ptx::from_binary(self.bytes.to_vec())
        }
    }
}

type Slot = Arc<Mutex<Option<Image>>>;
static IMAGES: Mutex<Option<HashMap<String, Slot>>> = Mutex::new(None);

impl Compiler {
    /// `file` of kernels/, with `defines` such as `-DNTC_WIDTHS=5,36,36,3`.
    ///
    /// # Errors
    /// What the compiler said, in one line.
    pub fn image(&self, file: &str, defines: &[String]) -> Result<Image> {
        let sources = sources()?;
        let key = self.key(&sources, file, defines);
        let slot = {
            let mut images = IMAGES.lock().unwrap_or_else(|e| e.into_inner());
            images.get_or_insert_default().entry(key.clone()).or_default().clone()
        };
        // Held while compiling, so that a second backend waits for the first one's result.
        let mut slot = slot.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(image) = slot.as_ref() {
            return Ok(image.clone());
        }
        let image = match read_cached(&key) {
            Some(image) => image,
            None => {
                let image = self.compile(&sources, file, defines)?;
                // A folder that cannot be written costs time, not the run.
                let _ = write_cached(&key, &image);
                image
            }
        };
        *slot = Some(image.clone());
        Ok(image)
    }

    /// Changes with everything that the result depends on.
    fn key(&self, sources: &[(&str, Cow<'static, str>)], file: &str, defines: &[String]) -> String {
        let mut hash = Fnv::new();
        let capability = format!("{:?}", self.capability);
        for part in [self.identity.as_str(), &capability, file].into_iter().chain(OPTIONS) {
            hash.add(part.as_bytes());
        }
        defines.iter().for_each(|define| hash.add(define.as_bytes()));
        for (name, text) in sources.iter().filter(|(name, _)| *name == file || name.ends_with(".cuh")) {
            hash.add(name.as_bytes());
            hash.add(text.as_bytes());
        }
        format!("{:032x}", hash.0)
    }

    fn compile(&self, sources: &[(&str, Cow<'static, str>)], file: &str, defines: &[String]) -> Result<Image> {
        let (major, minor) = self.capability;
        let build = |arch: String| Program::new(sources, file)?.build(&arch, defines);
        match build(format!("sm_{major}{minor}")) {
            Ok(image) => Ok(image),
            // A GPU newer than this NVRTC: the driver compiles PTX of an older architecture for it.
            Err(Failure::Architecture) => match build("compute_80".into()) {
                Ok(image) => Ok(image),
                Err(Failure::Architecture) => Err(Error::Backend(format!(
                    "--cuda: this GPU (compute capability {major}.{minor}) is not supported by the NVRTC found; install \
                     one that matches it"
                ))),
                Err(Failure::Other(e)) => Err(e),
            },
            Err(Failure::Other(e)) => Err(e),
        }
    }
}

/// The sources: this program's own, or in builds for tests those of the folder NTC_KERNELS_DIR.
fn sources() -> Result<Vec<(&'static str, Cow<'static, str>)>> {
    let folder = std::env::var_os("NTC_KERNELS_DIR").filter(|_| cfg!(feature = "emu"));
    let text = |name: &'static str, own: &'static str| match &folder {
        None => Ok((name, Cow::Borrowed(own))),
        Some(folder) => {
            let bytes = read_all(&PathBuf::from(folder).join(name))?;
            Ok((name, Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())))
        }
    };
    SOURCES.iter().map(|&(name, own)| text(name, own)).collect()
}

enum Failure {
    /// The compiler does not know the architecture.
    Architecture,
    Other(Error),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Failure::Other(e)
    }
}

/// A program of NVRTC's, released on drop.
struct Program {
    handle: sys::nvrtcProgram,
    file: String,
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: `handle` was made by nvrtcCreateProgram and is released once.
        let _ = unsafe { result::destroy_program(self.handle) };
    }
}

impl Program {
    fn new(sources: &[(&str, Cow<'static, str>)], file: &str) -> Result<Self> {
        let text = |text: &str| CString::new(text).map_err(|_| failed(file, "a source holds a zero byte"));
        let (mut headers, mut names) = (vec![], vec![]);
        let mut main = CString::default();
        for (name, source) in sources {
            if *name == file {
                main = text(source)?;
            } else if name.ends_with(".cuh") {
                headers.push(text(source)?);
                names.push(text(name)?);
            }
        }
        let pointers = |strings: &[CString]| -> Vec<*const c_char> { strings.iter().map(|s| s.as_ptr()).collect() };
        let name = text(file)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: all strings live through the call, which copies them; the two lists have the length given.
        let code = unsafe {
            sys::nvrtcCreateProgram(
                &mut handle,
                main.as_ptr(),
                name.as_ptr(),
                headers.len() as i32,
                pointers(&headers).as_ptr(),
                pointers(&names).as_ptr(),
            )
        };
        code.result().map_err(|e| failed(file, &format!("{e:?}")))?;
        Ok(Program { handle, file: file.into() })
    }

    fn build(self, arch: &str, defines: &[String]) -> std::result::Result<Image, Failure> {
        let architecture = format!("--gpu-architecture={arch}");
        let options: Vec<String> =
            OPTIONS.iter().map(|&o| o.to_owned()).chain([architecture]).chain(defines.iter().cloned()).collect();
        // SAFETY: `handle` is a live program.
        let built = unsafe { result::compile_program(self.handle, &options) };
        if let Err(e) = built {
            let log = self.log();
            if e.0 == sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION && log.contains("gpu-architecture") {
                return Err(Failure::Architecture);
            }
            return Err(failed(&self.file, &log).into());
        }
        let is_ptx = arch.starts_with("compute");
        let bytes = if is_ptx { self.ptx() } else { self.cubin() };
        let bytes = bytes.map_err(|e| failed(&self.file, &format!("{e:?}")))?;
        Ok(Image { bytes: Arc::new(bytes), is_ptx })
    }

    fn log(&self) -> String {
        // SAFETY: `handle` is a live program that has been compiled.
        let log = unsafe { result::get_program_log(self.handle) }.unwrap_or_default();
        String::from_utf8_lossy(&log.iter().map(|&c| c as u8).collect::<Vec<u8>>()).trim_end_matches('\0').to_owned()
    }

    fn cubin(&self) -> std::result::Result<Vec<u8>, result::NvrtcError> {
        let mut size = 0;
        // SAFETY: `handle` is a live program compiled for a real architecture, and the buffer has the size it asked for.
        unsafe {
            sys::nvrtcGetCUBINSize(self.handle, &mut size).result()?;
            let mut bytes = vec![0u8; size];
            sys::nvrtcGetCUBIN(self.handle, bytes.as_mut_ptr().cast()).result()?;
            Ok(bytes)
        }
    }

    fn ptx(&self) -> std::result::Result<Vec<u8>, result::NvrtcError> {
        // SAFETY: `handle` is a live program compiled for a virtual architecture.
        let text = unsafe { result::get_ptx(self.handle) }?;
        Ok(text.into_iter().map(|c| c as u8).collect())
    }
}

/// One line for a compilation that failed: the first error of its log.
fn failed(file: &str, log: &str) -> Error {
    let line = log.lines().find(|line| line.contains("error")).or(log.lines().next()).unwrap_or("no message");
    let note = log.lines().last().filter(|last| last.contains("compiler is needed")).unwrap_or("");
    Error::Backend(format!("CUDA: kernels/{file} does not compile: {} {}", line.trim(), note.trim()).trim_end().into())
}

/// The folder for compiled kernels: NTC_CACHE_DIR, else ntc-es in the user's cache folder, else in the temporary folder.
fn folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(own) = set("NTC_CACHE_DIR") {
        return own;
    }
    let user = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache"))).or(set("LOCALAPPDATA"));
    user.unwrap_or_else(std::env::temp_dir).join("ntc-es")
}

fn path_of(key: &str) -> PathBuf {
    folder().join(format!("{key}.kernels"))
}

/// A file of the cache is a hash of the rest, one byte for the kind, the image.
fn read_cached(key: &str) -> Option<Image> {
    let bytes = read_all(&path_of(key)).ok()?;
    let (head, rest) = bytes.split_at_checked(16)?;
    let whole = head == Fnv::of(rest).to_le_bytes();
    let (&kind, image) = rest.split_first()?;
    whole.then(|| Image { bytes: Arc::new(image.to_vec()), is_ptx: kind == 1 })
}

fn write_cached(key: &str, image: &Image) -> Result<()> {
    let path = path_of(key);
    std::fs::create_dir_all(folder()).map_err(Error::io(folder()))?;
    let rest = [&[u8::from(image.is_ptx)], image.bytes.as_slice()].concat();
    write_atomic(&path, |w| {
        w.write_all(&Fnv::of(&rest).to_le_bytes())?;
        w.write_all(&rest)
    })
}

/// Writes `bytes` to a file of the cache named by their content, and returns its path.
#[cfg(feature = "emu")]
pub fn keep(bytes: &[u8], name: &str) -> Result<PathBuf> {
    let write = |folder: PathBuf| {
        let path = folder.join(format!("{:032x}-{name}", Fnv::of(bytes)));
        if read_all(&path).is_ok_and(|before| before == bytes) {
            return Ok(path);
        }
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        write_atomic(&path, |w| w.write_all(bytes))?;
        Ok(path)
    };
    write(folder()).or_else(|_| write(std::env::temp_dir().join("ntc-es")))
}

/// FNV-1a, 128 bits; parts are kept apart by their length.
struct Fnv(u128);

impl Fnv {
    fn new() -> Self {
        Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn of(bytes: &[u8]) -> u128 {
        let mut hash = Fnv::new();
        hash.add(bytes);
        hash.0
    }

    fn add(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for &b in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u128::from(b)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}
