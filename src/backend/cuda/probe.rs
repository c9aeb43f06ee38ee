//! Finds CUDA's driver and run-time compiler, and says in one line what is missing. Never panics.
//!
//! cudarc panics where a library or one of its functions is absent, so everything that this program calls is looked up
//! here before cudarc is. Under the feature `emu` the stand-ins of kernels/host can take the place of both libraries;
//! cudarc keeps what it loads, so one process uses the GPU or the stand-ins.

use crate::error::{Error, Result};
use cudarc::driver::{CudaFunction, sys};
use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Mutex;

/// Where a [`super::Cuda`] runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A GPU by its number.
    Gpu(usize),
    /// The stand-ins on the CPU, in builds with the feature `emu`.
    Emulation,
}

impl Device {
    /// The device's number for the driver.
    pub fn ordinal(self) -> usize {
        match self {
            Device::Gpu(n) => n,
            Device::Emulation => 0,
        }
    }
}

/// Size of a kernel's parameter by function and index; the driver's `cuFuncGetParamInfo`.
pub type ParameterInfo = unsafe extern "C" fn(*mut c_void, usize, *mut usize, *mut usize) -> c_int;

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Tells kernels' parameters, where the driver can.
    pub parameter_info: Option<ParameterInfo>,
    /// The compiler and everything besides sources and options that decides what it makes.
    pub compiler: String,
}

/// The driver's functions that cudarc calls for this program.
const DRIVER: [&str; 22] = [
    "cuInit",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamSynchronize",
];

/// NVRTC's functions that this program calls.
const COMPILER: [&str; 11] = [
    "nvrtcVersion",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcCompileProgram",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
    "nvrtcGetPTXSize",
    "nvrtcGetPTX",
    "nvrtcGetErrorString",
];

/// What this process uses: the choice (GPU or stand-ins) and what was found.
static USED: Mutex<Option<(bool, Found)>> = Mutex::new(None);

/// Finds both libraries for `device` and initialises the driver.
///
/// # Errors
/// What is missing and how to install it; or that this process uses the other choice already.
pub fn find(device: Device) -> Result<Found> {
    let emulated = device == Device::Emulation;
    let mut used = USED.lock().unwrap_or_else(|e| e.into_inner());
    if let Some((before, found)) = used.as_ref() {
        if *before != emulated {
            return Err(Error::Backend(
                "CUDA: one process uses the GPU or the emulation, not both; run it twice".into(),
            ));
        }
        check_ordinal(device)?;
        return Ok(found.clone());
    }
    let found = if emulated { find_stand_ins()? } else { find_libraries()? };
    *used = Some((emulated, found.clone()));
    drop(used);
    check_ordinal(device)?;
    Ok(found)
}

/// Whether a GPU and everything that it needs can be used, without choosing it for this process.
///
/// # Errors
/// What is missing.
pub fn gpu() -> Result<()> {
    let driver = driver()?;
    count_devices(&driver)?;
    compiler().map(|_| ())
}

fn backend(message: impl Into<String>) -> Error {
    Error::Backend(message.into())
}

fn find_libraries() -> Result<Found> {
    let driver = driver()?;
    require(&driver, &DRIVER, "the NVIDIA driver is too old or a stub")?;
    count_devices(&driver)?;
    let parameter_info = parameter_info(&driver);
    let compiler = compiler()?;
    require(&compiler, &COMPILER, "NVRTC is too old")?;
    let found = Found { parameter_info, compiler: describe(&compiler)? };
    // cudarc finds them again by their names.
    std::mem::forget((driver, compiler));
    Ok(found)
}

/// The driver's library as cudarc looks for it.
fn driver() -> Result<Library> {
    let names = ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates);
    first_of(names).ok_or_else(|| {
        backend(
            "--cuda: no NVIDIA driver: libcuda.so.1 could not be loaded; install NVIDIA's driver, or run without --cuda",
        )
    })
}

/// NVRTC: from the folder NTC_NVRTC_DIR, else as cudarc looks for it.
fn compiler() -> Result<Library> {
    if let Some(folder) = std::env::var_os("NTC_NVRTC_DIR") {
        return compiler_in(std::path::Path::new(&folder));
    }
    first_of(cudarc::get_lib_name_candidates("nvrtc")).ok_or_else(|| {
        backend(
            "--cuda: no NVRTC: libnvrtc.so.13 or .12 could not be loaded; `pip install nvidia-cuda-nvrtc` and set \
             NTC_NVRTC_DIR to the folder that holds it, or install the CUDA toolkit",
        )
    })
}

/// NVRTC from one folder, with the library that it loads by name itself.
fn compiler_in(folder: &std::path::Path) -> Result<Library> {
    let missing = || backend("NTC_NVRTC_DIR: that folder holds no libnvrtc.so that can be loaded");
    let entries = std::fs::read_dir(folder).map_err(|_| missing())?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    // Builtins first; of several versions the last.
    paths.sort_by_key(|path| !path.to_string_lossy().contains("builtins"));
    let mut last = None;
    for path in paths {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.starts_with("libnvrtc") || name.contains(".alt.") {
            continue;
        }
        // SAFETY: loading NVIDIA's library runs its initialisers, which is what the user asked for by naming the folder.
        let Ok(library) = (unsafe { Library::new(&path) }) else { continue };
        if name.contains("builtins") {
            std::mem::forget(library);
        } else {
            last = Some(library);
        }
    }
    last.ok_or_else(missing)
}

fn first_of(names: impl IntoIterator<Item = String>) -> Option<Library> {
    // SAFETY: these names belong to NVIDIA's libraries; loading one runs its initialisers.
    names.into_iter().find_map(|name| unsafe { Library::new(name) }.ok())
}

/// Refuses a library that lacks one of `names`.
fn require(library: &Library, names: &[&str], otherwise: &str) -> Result<()> {
    for name in names {
        // SAFETY: the symbol is only looked up, not called.
        let there = unsafe { library.get::<*const c_void>(name.as_bytes()) }.is_ok();
        if !there {
            return Err(backend(format!("--cuda: {otherwise}: it has no {name}")));
        }
    }
    Ok(())
}

fn count_devices(driver: &Library) -> Result<usize> {
    type Init = unsafe extern "C" fn(c_uint) -> c_int;
    type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
    let old = |_| backend("--cuda: the NVIDIA driver is a stub: it has no cuInit");
    let mut count: c_int = 0;
    // SAFETY: both symbols have these signatures in every version of the driver, and `count` outlives the call.
    let (first, second) = unsafe {
        let init = driver.get::<Init>(b"cuInit").map_err(old)?;
        let devices = driver.get::<Count>(b"cuDeviceGetCount").map_err(old)?;
        let first = init(0);
        (first, if first == 0 { devices(&mut count) } else { first })
    };
    match (first, second, count) {
        (0, 0, 1..) => Ok(count as usize),
        (code, _, _) => Err(backend(format!(
            "--cuda: no usable GPU (cuInit: {code}, devices: {count}); check `nvidia-smi`, or run without --cuda"
        ))),
    }
}

fn check_ordinal(device: Device) -> Result<()> {
    let count = cudarc::driver::CudaContext::device_count().unwrap_or(0) as usize;
    if device.ordinal() >= count {
        return Err(backend(format!("--cuda-device {}: there are {count} devices, counted from 0", device.ordinal())));
    }
    Ok(())
}

fn parameter_info(driver: &Library) -> Option<ParameterInfo> {
    // SAFETY: the function has had this signature since it exists (CUDA 12.4), and the library stays loaded.
    unsafe { driver.get::<ParameterInfo>(b"cuFuncGetParamInfo").ok().map(|f| *f) }
}

/// NVRTC's version, and what the stand-in says of itself.
fn describe(compiler: &Library) -> Result<String> {
    type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    type Identity = unsafe extern "C" fn() -> *const c_char;
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: both functions have these signatures; the identity is a string that lives as long as the library.
    unsafe {
        let version = compiler.get::<Version>(b"nvrtcVersion").map_err(|e| backend(format!("NVRTC: {e}")))?;
        version(&mut major, &mut minor);
        match compiler.get::<Identity>(b"ntc_emu_identity") {
            Ok(identity) => Ok(std::ffi::CStr::from_ptr(identity()).to_string_lossy().into_owned()),
            Err(_) => Ok(format!("NVRTC {major}.{minor}")),
        }
    }
}

#[cfg(not(feature = "emu"))]
fn find_stand_ins() -> Result<Found> {
    Err(Error::config("--cuda-device emu: this build has no emulation; build with --features emu"))
}

#[cfg(feature = "emu")]
fn find_stand_ins() -> Result<Found> {
    let load = |bytes: &[u8], name: &str| -> Result<Library> {
        let path = super::compile::keep(bytes, name)?;
        // SAFETY: the library is this program's own.
        unsafe { Library::new(&path) }.map_err(|e| backend(format!("--cuda-device emu: {}: {e}", path.display())))
    };
    let driver = load(include_bytes!(env!("NTC_EMU_DRIVER")), "libcuda.so")?;
    let compiler = load(include_bytes!(env!("NTC_EMU_COMPILER")), "libnvrtc.so")?;
    require(&driver, &DRIVER, "the stand-in driver")?;
    require(&compiler, &COMPILER, "the stand-in compiler")?;
    // cudarc asks for the first names that `get_lib_name_candidates` gives, which are the stand-ins' own.
    let answers = first_of(cudarc::get_lib_name_candidates("cuda"));
    // SAFETY: the symbol is only looked up.
    let ours = answers.is_some_and(|l| unsafe { l.get::<*const c_void>(b"ntc_emu_driver") }.is_ok());
    if !ours {
        return Err(backend("--cuda-device emu: another libcuda is loaded in this process"));
    }
    let found = Found { parameter_info: parameter_info(&driver), compiler: describe(&compiler)? };
    std::mem::forget((driver, compiler));
    Ok(found)
}

/// Sizes of a kernel's parameters, as the driver tells them.
pub fn parameter_sizes(info: ParameterInfo, function: &CudaFunction) -> Vec<usize> {
    let (mut offset, mut size) = (0, 0);
    let mut sizes = vec![];
    // SAFETY: the function is loaded, and both numbers outlive the call; an index behind the last gives an error.
    while unsafe { info(function.cu_function().cast(), sizes.len(), &mut offset, &mut size) }
        == sys::CUresult::CUDA_SUCCESS as i32
    {
        sizes.push(size);
    }
    sizes
}

/// Refuses arguments whose number or sizes are not those of the kernel's parameters.
pub fn check_arguments(kernel: &str, sizes: &[usize], arguments: &[(*mut c_void, usize)]) -> Result<()> {
    if sizes.len() != arguments.len() {
        let (takes, given) = (sizes.len(), arguments.len());
        return Err(Error::Backend(format!("CUDA: kernel {kernel} takes {takes} arguments, not {given}")));
    }
    for (k, (size, argument)) in sizes.iter().zip(arguments).enumerate() {
        if *size != argument.1 {
            let given = argument.1;
            return Err(Error::Backend(format!("CUDA: kernel {kernel}: argument {k} has {size} bytes, not {given}")));
        }
    }
    Ok(())
}
