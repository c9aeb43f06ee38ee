//! Grids, shared memory and argument lists: the only file, with its child, that names a kernel.
//!
//! An argument list repeats the kernel's parameter names in the kernel's order. Where the driver can tell a kernel's
//! parameters (CUDA 12.4 and later, and the emulation), their number and sizes are compared before the first launch.

use super::compile::Compiler;
use super::layout::{Batch, Draw, Noise, Scene, Shape, Support};
use super::memory::{Buffer, refused};
use super::probe::{self, Device, ParameterInfo, check_arguments, parameter_sizes};
use crate::error::{Error, Result};
use crate::estimate::adam::StepFactors;
use crate::model::decode::Geometry;
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

/// Threads of every block (kernels/compat.cuh).
const THREADS: usize = 128;
/// Candidates whose errors a search block holds (kernels/selector_search.cu).
const CANDIDATES: usize = 16;
/// Shared memory of a block, in bytes, that every GPU grants.
const SHARED: usize = 48 << 10;
/// Blocks along y at most.
pub const ROWS: usize = 65535;

/// The kernels of one decoder shape on one device; a file of kernels/ is compiled when a kernel of it is first used.
pub struct Launcher {
    pub stream: Arc<CudaStream>,
    pub shape: Shape,
    context: Arc<CudaContext>,
    compiler: Compiler,
    parameter_info: Option<ParameterInfo>,
    deblock: bool,
    modules: RefCell<HashMap<&'static str, Arc<CudaModule>>>,
    functions: RefCell<HashMap<Name, Kernel>>,
}

/// A kernel's file and name.
type Name = (&'static str, &'static str);

/// A loaded kernel, and the sizes of its parameters where the driver tells them.
type Kernel = (CudaFunction, Option<Vec<usize>>);

/// Launches a kernel with arguments `name: type = value`, by the kernel's own parameter names and in its order.
macro_rules! launch {
    ($self:expr, $kernel:expr, $grid:expr, $shared:expr; $($name:ident: $ty:ty = $value:expr),* $(,)?) => {{
        // Taken first: an argument may have the name of what the grid is computed from.
        let (target, kernel, grid, shared): (&Launcher, Name, (usize, usize), usize) = ($self, $kernel, $grid, $shared);
        $(let $name: $ty = $value;)*
        let mut arguments = [$((std::ptr::from_ref(&$name).cast_mut().cast::<c_void>(), size_of::<$ty>())),*];
        target.launch(kernel, grid, shared, &mut arguments)
    }};
}

mod gauss_newton;
mod search;

impl Launcher {
    /// Opens `device` for `geometry`'s decoder.
    ///
    /// # Errors
    /// What is missing on this machine.
    pub fn new(device: Device, geometry: &Geometry) -> Result<Self> {
        let found = probe::find(device)?;
        let context = CudaContext::new(device.ordinal()).map_err(|e| refused("opening the device", e))?;
        let capability = context.compute_capability().map_err(|e| refused("asking for the architecture", e))?;
        if capability < (7, 5) {
            let (major, minor) = capability;
            return Err(Error::Backend(format!(
                "--cuda: this GPU has compute capability {major}.{minor}; 7.5 (Turing) is the least supported"
            )));
        }
        Ok(Launcher {
            stream: context.default_stream(),
            shape: Shape::new(&geometry.network),
            context,
            compiler: Compiler { capability, identity: found.compiler },
            parameter_info: found.parameter_info,
            deblock: geometry.deblock.is_some(),
            modules: RefCell::default(),
            functions: RefCell::default(),
        })
    }

    /// The device's name.
    pub fn device_name(&self) -> String {
        self.context.name().unwrap_or_else(|_| "unknown".into())
    }

    fn function(&self, name: Name) -> Result<Kernel> {
        if let Some(found) = self.functions.borrow().get(&name) {
            return Ok(found.clone());
        }
        let (file, kernel) = name;
        let known = self.modules.borrow().get(file).cloned();
        let module = match known {
            Some(module) => module,
            None => {
                // Noise and Adam are the same for every decoder.
                let general = ["noise.cu", "adam.cu"].contains(&file);
                let image = self.compiler.image(file, if general { &[] } else { &self.shape.defines })?;
                let module = self.context.load_module(image.load()).map_err(|e| refused(file, e))?;
                self.modules.borrow_mut().insert(file, module.clone());
                module
            }
        };
        let function = module.load_function(kernel).map_err(|e| refused(kernel, e))?;
        let sizes = self.parameter_info.map(|info| parameter_sizes(info, &function));
        self.functions.borrow_mut().insert(name, (function.clone(), sizes.clone()));
        Ok((function, sizes))
    }

    fn launch(
        &self,
        name: Name,
        grid: (usize, usize),
        shared: usize,
        arguments: &mut [(*mut c_void, usize)],
    ) -> Result<()> {
        if grid.0 == 0 || grid.1 == 0 {
            return Ok(());
        }
        let kernel = name.1;
        let (function, sizes) = self.function(name)?;
        if let Some(sizes) = sizes {
            check_arguments(kernel, &sizes, arguments)?;
        }
        if shared > SHARED {
            return Err(Error::Backend(format!("CUDA: kernel {kernel} asks for {shared} bytes of shared memory")));
        }
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(|a| a.0).collect();
        self.context.bind_to_thread().map_err(|e| refused(kernel, e))?;
        // SAFETY: the arguments have the number and sizes of the kernel's parameters, live through the call, which copies
        // them, and addresses among them belong to buffers that are alive until the stream is synchronised: buffers are
        // freed in stream order. That kernels stay within those buffers is what the emulation's tests hold.
        let launched = unsafe {
            result::launch_kernel(
                function.cu_function(),
                (grid.0 as u32, grid.1 as u32, 1),
                (THREADS as u32, 1, 1),
                shared as u32,
                self.stream.cu_stream(),
                &mut pointers,
            )
        };
        launched.map_err(|e| refused(&format!("kernel {kernel}"), e))
    }

    /// Normals `start .. start + count` of `pairs` pairs from `first_pair` on, one row of `count` floats a pair.
    pub fn fill_normals(
        &self,
        draw: Draw,
        out: &Buffer<f32>,
        count: usize,
        start: usize,
        (first_pair, pairs): (usize, usize),
    ) -> Result<()> {
        let counters = (start + count).div_ceil(4) - start / 4;
        launch!(self, ("noise.cu", "fill_normals"), (counters.div_ceil(THREADS), pairs), 0;
            out: u64 = out.address(),
            count: u64 = count as u64,
            start: u64 = start as u64,
            stride: u64 = count,
            key0: u32 = draw.key[0],
            key1: u32 = draw.key[1],
            stream: u32 = draw.stream as u32,
            step: u32 = draw.step,
            first_pair: u32 = first_pair as u32,
        )
    }

    /// `count` integers below `bound`.
    pub fn fill_indices(&self, draw: Draw, out: &Buffer<u32>, count: usize, bound: usize) -> Result<()> {
        launch!(self, ("noise.cu", "fill_indices"), (count.div_ceil(4 * THREADS), 1), 0;
            out: u64 = out.address(),
            count: u32 = count as u32,
            bound: u32 = bound as u32,
            key0: u32 = draw.key[0],
            key1: u32 = draw.key[1],
            stream: u32 = draw.stream as u32,
            step: u32 = draw.step,
        )
    }

    /// Adam on `w` with gradient g * scale.
    pub fn adam_step(
        &self,
        (w, m, v): (&Buffer<f32>, &Buffer<f32>, &Buffer<f32>),
        g: &Buffer<f32>,
        count: usize,
        scale: f32,
        factors: StepFactors,
        broken: &Buffer<u32>,
    ) -> Result<()> {
        launch!(self, ("adam.cu", "adam_step"), (count.div_ceil(THREADS), 1), 0;
            w: u64 = w.address(),
            m: u64 = m.address(),
            v: u64 = v.address(),
            g: u64 = g.address(),
            count: u64 = count as u64,
            scale: f32 = scale,
            rate: f32 = factors.rate,
            correct1: f32 = factors.correct1,
            correct2: f32 = factors.correct2,
            broken: u64 = broken.address(),
        )
    }

    /// The decoder's packed copy.
    pub fn pack_decoder(&self, w: &Buffer<f32>, place: &Buffer<u32>, count: usize, packed: &Buffer<f32>) -> Result<()> {
        launch!(self, ("adam.cu", "pack_decoder"), (count.div_ceil(THREADS), 1), 0;
            w: u64 = w.address(),
            place: u64 = place.address(),
            count: u32 = count as u32,
            packed: u64 = packed.address(),
        )
    }

    /// Texels of a tile whose outputs, for `variants` decodes, fit shared memory beside the parameters.
    fn tile(&self, variants: usize) -> (usize, usize, usize) {
        let halo = 2 * usize::from(self.deblock);
        let shapes =
            if self.deblock { [(16, 16), (16, 8), (8, 8), (8, 4)] } else { [(16, 8), (16, 8), (8, 8), (8, 4)] };
        let bytes =
            |(w, h): (usize, usize)| self.shape.stage() + variants * self.shape.outputs * (w + halo) * (h + halo) * 4;
        let (w, h) = shapes.into_iter().find(|&shape| bytes(shape) <= SHARED).unwrap_or(shapes[3]);
        (w, h, bytes((w, h)))
    }

    fn tiles(scene: &Scene, (w, h): (usize, usize)) -> usize {
        (scene.width as usize).div_ceil(w) * (scene.height as usize).div_ceil(h)
    }

    /// The decode, one plane an output.
    pub fn decode_planes(&self, scene: &Scene, packed: &Buffer<f32>, planes: &Buffer<f32>) -> Result<()> {
        let (w, h, shared) = self.tile(1);
        launch!(self, ("evaluate.cu", "decode_planes"), (Self::tiles(scene, (w, h)), 1), shared;
            scene: Scene = *scene,
            packed: u64 = packed.address(),
            tile_w: i32 = w as i32,
            tile_h: i32 = h as i32,
            planes: u64 = planes.address(),
        )
    }

    /// Each texture's squared error; `first` are the textures' first outputs and the number of outputs.
    pub fn evaluate_errors(
        &self,
        scene: &Scene,
        packed: &Buffer<f32>,
        (textures, first, depth, shares): (usize, &Buffer<u32>, &Buffer<u32>, &Buffer<f32>),
        rounded: bool,
        sums: &Buffer<u64>,
    ) -> Result<()> {
        let (w, h, shared) = self.tile(1);
        launch!(self, ("evaluate.cu", "evaluate_errors"), (Self::tiles(scene, (w, h)), 1), shared;
            scene: Scene = *scene,
            packed: u64 = packed.address(),
            tile_w: i32 = w as i32,
            tile_h: i32 = h as i32,
            textures: i32 = textures as i32,
            first: u64 = first.address(),
            depth: u64 = depth.address(),
            shares: u64 = shares.address(),
            rounded: i32 = i32::from(rounded),
            sums: u64 = sums.address(),
        )
    }

    /// Points that are decoded for a texel of a minibatch.
    pub fn points(&self) -> usize {
        if self.deblock { 5 } else { 1 }
    }

    /// Gathers texels into `batch`: those listed from `texels` on (an address), or `first`.. where that is 0. `file` is
    /// whose module the kernel is taken from.
    pub fn gather_batch(
        &self,
        file: &'static str,
        scene: &Scene,
        texels: u64,
        first: usize,
        batch: &Batch,
    ) -> Result<()> {
        launch!(self, (file, "gather_batch"), ((batch.count as usize).div_ceil(THREADS), self.points()), 0;
            scene: Scene = *scene,
            texels: u64 = texels,
            first: u32 = first as u32,
            count: u32 = batch.count,
            stride: u32 = batch.stride,
            inputs: u64 = batch.inputs,
            target: u64 = batch.target,
            wh: u64 = batch.wh,
            wv: u64 = batch.wv,
        )
    }

    /// Both signs of `pairs` pairs, packed.
    pub fn perturb_decoders(
        &self,
        w: &Buffer<f32>,
        e: &Buffer<f32>,
        place: &Buffer<u32>,
        (count, pairs): (usize, usize),
        sigma: f32,
        decoders: &Buffer<f32>,
    ) -> Result<()> {
        launch!(self, ("decoder_es.cu", "perturb_decoders"), (count.div_ceil(THREADS), pairs), 0;
            w: u64 = w.address(),
            e: u64 = e.address(),
            place: u64 = place.address(),
            count: u32 = count as u32,
            sigma: f32 = sigma,
            decoders: u64 = decoders.address(),
        )
    }

    /// Every decoder's loss over the batch.
    pub fn decoder_es_losses(
        &self,
        scene: &Scene,
        batch: &Batch,
        decoders: (&Buffer<f32>, usize),
        sums: &Buffer<u64>,
    ) -> Result<()> {
        let side_by_side = if self.shape.widths.iter().all(|&w| w <= 48) { 2 } else { 1 };
        let across = (batch.count as usize).div_ceil(THREADS * side_by_side);
        launch!(self, ("decoder_es.cu", "decoder_es_losses"), (across, decoders.1), self.shape.stage();
            scene: Scene = *scene,
            batch: Batch = *batch,
            decoders: u64 = decoders.0.address(),
            sums: u64 = sums.address(),
        )
    }

    /// The pairs' part of the gradient, before its scale.
    pub fn decoder_es_gradient(
        &self,
        e: &Buffer<f32>,
        sums: &Buffer<u64>,
        (pairs, count): (usize, usize),
        unit: f32,
        fresh: bool,
        g: &Buffer<f32>,
    ) -> Result<()> {
        launch!(self, ("decoder_es.cu", "decoder_es_gradient"), (count.div_ceil(THREADS), 1), 0;
            e: u64 = e.address(),
            sums: u64 = sums.address(),
            pairs: u32 = pairs as u32,
            count: u32 = count as u32,
            unit: f32 = unit,
            fresh: i32 = i32::from(fresh),
            g: u64 = g.address(),
        )
    }

    /// Everything that finite differences compute on a gathered batch: the trace, the unperturbed loss (added to `loss`)
    /// and each layer's differences (added to `sums`).
    pub fn decoder_fd(
        &self,
        scene: &Scene,
        batch: &Batch,
        packed: &Buffer<f32>,
        traces: &Buffer<f32>,
        h: f32,
        (sums, loss): (&Buffer<u64>, &Buffer<u64>),
    ) -> Result<()> {
        let across = (batch.count as usize).div_ceil(THREADS);
        launch!(self, ("decoder_fd.cu", "decoder_fd_trace"), (across, self.points()), self.shape.stage();
            scene: Scene = *scene,
            batch: Batch = *batch,
            packed: u64 = packed.address(),
            traces: u64 = traces.address(),
        )?;
        launch!(self, ("decoder_fd.cu", "decoder_fd_loss"), (across, 1), 0;
            scene: Scene = *scene,
            batch: Batch = *batch,
            traces: u64 = traces.address(),
            sum: u64 = loss.address(),
        )?;
        for (layer, kernel) in FD_LAYERS.iter().enumerate().take(self.shape.widths.len() - 1) {
            let (inputs, units) = (self.shape.widths[layer], self.shape.widths[layer + 1]);
            let shared = self.shape.stage() + (inputs + 1) * size_of::<u64>();
            launch!(self, ("decoder_fd.cu", kernel), (across, units), shared;
                scene: Scene = *scene,
                batch: Batch = *batch,
                packed: u64 = packed.address(),
                traces: u64 = traces.address(),
                h: f32 = h,
                sums: u64 = sums.address(),
            )?;
        }
        Ok(())
    }

    /// The gradient from the differences.
    pub fn decoder_fd_gradient(
        &self,
        w: &Buffer<f32>,
        sums: &Buffer<u64>,
        count: usize,
        (unit, h): (f32, f32),
        g: &Buffer<f32>,
    ) -> Result<()> {
        launch!(self, ("decoder_fd.cu", "decoder_fd_gradient"), (count.div_ceil(THREADS), 1), 0;
            w: u64 = w.address(),
            sums: u64 = sums.address(),
            count: u32 = count as u32,
            unit: f32 = unit,
            h: f32 = h,
            g: u64 = g.address(),
        )
    }

    /// Loss differences \[pair]\[texel] of a group of pairs.
    pub fn latent_es_pairs(
        &self,
        scene: &Scene,
        packed: &Buffer<f32>,
        noise: &Noise,
        pairs: usize,
        d: &Buffer<i64>,
    ) -> Result<()> {
        let (w, h, shared) = self.tile(2);
        launch!(self, ("latent_es.cu", "latent_es_pairs"), (Self::tiles(scene, (w, h)), pairs), shared;
            scene: Scene = *scene,
            packed: u64 = packed.address(),
            noise: Noise = *noise,
            tile_w: i32 = w as i32,
            tile_h: i32 = h as i32,
            d: u64 = d.address(),
        )
    }

    /// A level's part of the gradient from a group of pairs, before its scale.
    pub fn latent_es_gather(
        &self,
        scene: &Scene,
        support: &Support,
        noise: &Noise,
        (d, pairs): (&Buffer<i64>, usize),
        fresh: bool,
        g: &Buffer<f32>,
    ) -> Result<()> {
        let cells = support.width as usize * support.height as usize;
        let texels = scene.width as usize * scene.height as usize;
        // A thread for every eight texels of an average footprint.
        let lanes = (texels / cells.max(1) / 8).max(1).next_power_of_two().min(THREADS);
        let blocks = (cells * lanes).div_ceil(THREADS);
        launch!(self, ("latent_es.cu", "latent_es_gather"), (blocks, 1), THREADS * size_of::<i64>();
            support: Support = *support,
            noise: Noise = *noise,
            d: u64 = d.address(),
            pairs: u32 = pairs as u32,
            width: i32 = scene.width,
            texels: u64 = texels as u64,
            lanes: i32 = lanes as i32,
            fresh: i32 = i32::from(fresh),
            g: u64 = g.address(),
        )
    }
}

/// A kernel a layer.
#[rustfmt::skip]
const FD_LAYERS: [&str; 9] = [
    "decoder_fd_layer0", "decoder_fd_layer1", "decoder_fd_layer2", "decoder_fd_layer3", "decoder_fd_layer4",
    "decoder_fd_layer5", "decoder_fd_layer6", "decoder_fd_layer7", "decoder_fd_layer8",
];
