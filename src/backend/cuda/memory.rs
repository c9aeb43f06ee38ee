//! Device memory and copies, with errors that say what did not fit.

use crate::error::{Error, Result};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError, ValidAsZeroBits, sys};
use std::sync::Arc;

/// One line for what the driver answered.
pub fn refused(what: &str, e: DriverError) -> Error {
    let text = e.error_string().map(|text| text.to_string_lossy().into_owned());
    Error::Backend(format!("CUDA: {what}: {}", text.unwrap_or_else(|_| format!("{:?}", e.0))))
}

/// Device memory for `T`s; at least one, for a driver allocates no nothing.
pub struct Buffer<T> {
    slice: CudaSlice<T>,
    stream: Arc<CudaStream>,
    what: &'static str,
}

impl<T: DeviceRepr + ValidAsZeroBits + Copy + Default> Buffer<T> {
    /// `len` zeros; `what` names them in errors.
    pub fn zeros(stream: &Arc<CudaStream>, what: &'static str, len: usize) -> Result<Self> {
        let bytes = len.max(1) * size_of::<T>();
        let slice = stream.alloc_zeros(len.max(1)).map_err(|e| match e.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::Backend(format!(
                "--cuda: too little device memory: {} MiB for {what} are not free; make the image smaller (--crop), or run \
                 without --cuda",
                bytes.div_ceil(1 << 20)
            )),
            _ => refused(what, e),
        })?;
        Ok(Buffer { slice, stream: stream.clone(), what })
    }

    /// A copy of `values`.
    pub fn of(stream: &Arc<CudaStream>, what: &'static str, values: &[T]) -> Result<Self> {
        let mut buffer = Self::zeros(stream, what, values.len())?;
        buffer.set(values)?;
        Ok(buffer)
    }

    /// At least `len` elements, whatever they hold.
    pub fn reserve(&mut self, len: usize) -> Result<()> {
        if self.slice.len() < len {
            *self = Self::zeros(&self.stream.clone(), self.what, len)?;
        }
        Ok(())
    }

    /// Overwrites the first elements.
    pub fn set(&mut self, values: &[T]) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        self.check(values.len())?;
        let mut part = self.slice.slice_mut(..values.len());
        self.stream.memcpy_htod(values, &mut part).map_err(|e| refused(self.what, e))
    }

    /// Zeroes everything.
    pub fn clear(&mut self) -> Result<()> {
        self.stream.memset_zeros(&mut self.slice).map_err(|e| refused(self.what, e))
    }

    /// The first `len` elements, when all work before is done.
    pub fn get(&self, len: usize) -> Result<Vec<T>> {
        let mut values = vec![T::default(); len];
        if len > 0 {
            self.check(len)?;
            let part = self.slice.slice(..len);
            self.stream.memcpy_dtoh(&part, &mut values).map_err(|e| refused(self.what, e))?;
            self.stream.synchronize().map_err(|e| refused(self.what, e))?;
        }
        Ok(values)
    }

    /// Its address on the device.
    pub fn address(&self) -> u64 {
        self.slice.device_ptr(&self.stream).0
    }

    fn check(&self, len: usize) -> Result<()> {
        if len <= self.slice.len() {
            return Ok(());
        }
        Err(Error::Backend(format!("CUDA: {}: {len} elements do not fit {}", self.what, self.slice.len())))
    }
}

/// Memory that steps share; grows to what is asked for.
pub struct Scratch {
    pub e: [Buffer<f32>; 2],
    pub decoders: Buffer<f32>,
    pub texels: Buffer<u32>,
    pub inputs: Buffer<f32>,
    pub target: Buffer<f32>,
    pub wh: Buffer<f32>,
    pub wv: Buffer<f32>,
    pub traces: Buffer<f32>,
    pub d: Buffer<i64>,
    pub sums: Buffer<u64>,
    pub count: Buffer<u64>,
    pub broken: Buffer<u32>,
}

impl Scratch {
    /// Nothing yet.
    pub fn new(stream: &Arc<CudaStream>) -> Result<Self> {
        let floats = |what| Buffer::zeros(stream, what, 0);
        Ok(Scratch {
            e: [floats("noise")?, floats("noise")?],
            decoders: floats("perturbed decoders")?,
            texels: Buffer::zeros(stream, "a minibatch", 0)?,
            inputs: floats("a minibatch")?,
            target: floats("a minibatch")?,
            wh: floats("a minibatch")?,
            wv: floats("a minibatch")?,
            traces: floats("finite differences")?,
            d: Buffer::zeros(stream, "loss differences", 0)?,
            sums: Buffer::zeros(stream, "sums", 0)?,
            count: Buffer::zeros(stream, "sums", 1)?,
            broken: Buffer::zeros(stream, "sums", 1)?,
        })
    }
}
