//! What a model is and what it decodes to: definitions generic over [`lanes::Lanes`]. No threads, no instruction sets.
pub mod channels;
pub mod decode;
pub mod lanes;
pub mod latent;
pub mod loss;
pub mod math;
pub mod mlp;
pub mod position;
pub mod price;
pub mod quant;
pub mod role;
pub mod structure;
