//! The shell: the only room with a clock, file descriptors, randomness and `unsafe`.

pub mod shell;
