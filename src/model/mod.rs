//! What a model is and what it decodes to: definitions generic over [`lanes::Lanes`]. No threads, no instruction sets.
pub mod lanes;
pub mod math;
pub mod structure;
