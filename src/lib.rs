//! Steplet, a Kubernetes node agent on one thread: the shell around the core, and the command line.

pub mod cli;
pub mod shell;
