//! Tensors with one line of JSON beside them, as safetensors files whose bytes depend on their content alone.

use crate::error::{Error, Result};
use crate::files::{read_up_to, write_atomic};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The only metadata key: with one, the header has one order.
const KEY: &str = "ntc_es";
/// Largest file that is read, in bytes: three times the largest model.
const MAX_FILE: u64 = 1 << 34;

/// One named array to be written.
pub struct Tensor {
    /// Name in the file.
    pub name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    /// An array of f32, last index fastest.
    pub fn f32(name: impl Into<String>, shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        Tensor { name: name.into(), dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }

    /// A list of u32.
    pub fn u32(name: impl Into<String>, values: &[u32]) -> Self {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        Tensor { name: name.into(), dtype: Dtype::U32, shape: vec![values.len()], bytes }
    }

    /// An array of u8, last index fastest.
    pub fn u8(name: impl Into<String>, shape: &[usize], bytes: Vec<u8>) -> Self {
        Tensor { name: name.into(), dtype: Dtype::U8, shape: shape.to_vec(), bytes }
    }
}

/// CRC-32 (IEEE) over all tensors' bytes in the given order.
pub fn checksum<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.for_each(|part| hasher.update(part));
    hasher.finalize()
}

impl Tensor {
    /// The values as the file holds them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Writes `tensors` and `about`, whose keys come out sorted, to `path`, as a whole or not at all.
pub fn write(path: &Path, about: &impl Serialize, tensors: &[Tensor]) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| Error::file(path, format!("cannot be written as safetensors: {e}"));
    // By way of a `Value`, whose maps are sorted.
    let about = serde_json::to_value(about).map_err(|e| failed(&e))?.to_string();
    let mut views = vec![];
    for Tensor { name, dtype, shape, bytes } in tensors {
        views.push((name, TensorView::new(*dtype, shape.clone(), bytes).map_err(|e| failed(&e))?));
    }
    let bytes = safetensors::serialize(views, Some(HashMap::from([(KEY.to_owned(), about)])));
    let bytes = bytes.map_err(|e| failed(&e))?;
    write_atomic(path, |w| w.write_all(&bytes))
}

/// A safetensors file in memory, not yet trusted.
pub struct Bytes {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Bytes {
    /// Reads `path`.
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Bytes { path: path.to_owned(), bytes: read_up_to(path, MAX_FILE)? })
    }

    /// The tensors, once the header is in order.
    pub fn tensors(&self) -> Result<Tensors<'_>> {
        let failed = |e: safetensors::SafeTensorError| {
            let reason = e.to_string().replace(['\n', '\r'], " ");
            Error::file(&self.path, format!("is no safetensors file, or a broken one: {reason}"))
        };
        let tensors = SafeTensors::deserialize(&self.bytes).map_err(failed)?;
        let (_, metadata) = SafeTensors::read_metadata(&self.bytes).map_err(failed)?;
        let about = metadata.metadata().as_ref().and_then(|m| m.get(KEY)).cloned();
        let about = about
            .ok_or_else(|| Error::file(&self.path, format!("has no metadata `{KEY}`: ntc-es did not write it")))?;
        Ok(Tensors { path: &self.path, tensors, about })
    }
}

/// Named arrays of one file.
pub struct Tensors<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
    about: String,
}

impl Tensors<'_> {
    /// The JSON beside the tensors.
    pub fn about<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.about).map_err(|e| {
            let reason = e.to_string().replace(['\n', '\r'], " ");
            Error::file(self.path, format!("metadata `{KEY}`: {reason}"))
        })
    }

    /// Refuses a file that holds anything but `count` tensors.
    pub fn expect_count(&self, count: usize) -> Result<()> {
        match self.tensors.len() {
            n if n == count => Ok(()),
            n => Err(Error::file(self.path, format!("has {n} tensors where its metadata means {count}"))),
        }
    }

    /// Whether there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.tensor(name).is_ok()
    }

    /// The bytes of a tensor of the given type and shape.
    fn bytes(&self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<&[u8]> {
        let refuse = |message: String| Err(Error::file(self.path, message));
        let Ok(view) = self.tensors.tensor(name) else { return refuse(format!("has no tensor `{name}`")) };
        if view.dtype() != dtype || view.shape() != shape {
            let (found, has) = (view.dtype(), view.shape());
            return refuse(format!("tensor `{name}` is {found} {has:?} and should be {dtype} {shape:?}"));
        }
        Ok(view.data())
    }

    /// An f32 tensor; every value is finite.
    pub fn f32(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let bytes = self.bytes(name, Dtype::F32, shape)?;
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        match values.iter().position(|x| !x.is_finite()) {
            Some(at) => Err(Error::file(self.path, format!("tensor `{name}`: value {at} is not finite"))),
            None => Ok(values),
        }
    }

    /// A list of `count` u32.
    pub fn u32(&self, name: &str, count: usize) -> Result<Vec<u32>> {
        let bytes = self.bytes(name, Dtype::U32, &[count])?;
        Ok(bytes.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect())
    }

    /// A u8 tensor.
    pub fn u8(&self, name: &str, shape: &[usize]) -> Result<&[u8]> {
        self.bytes(name, Dtype::U8, shape)
    }

    /// CRC-32 over the tensors named, in that order; a missing one counts as empty.
    pub fn checksum<'n>(&self, names: impl Iterator<Item = &'n str>) -> u32 {
        let views: Vec<_> = names.filter_map(|name| self.tensors.tensor(name).ok()).collect();
        checksum(views.iter().map(|view| view.data()))
    }
}
