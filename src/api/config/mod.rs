//! The kubelet's configuration: read strictly, defaulted, merged, checked and shown as upstream
//! does.
//!
//! Everything here is a function of bytes. Files are read, and lines of problems found, by the
//! shell.

mod amounts;
mod check;
mod duration;
mod gate_table;
mod gates;
mod kubelet;
mod labels;
mod load;
mod paths;
mod problem;
mod record;
mod sections;
mod support;

pub use check::Machine;
pub use duration::GoDuration;
pub use gates::{FeatureGates, Stage};
pub use kubelet::KubeletConfiguration;
pub use labels::{label_value, qualified_name};
pub use paths::{clean, join};
pub use problem::{Problem, ProblemKind, alike, push_index, push_key};
pub use sections::*;
pub use support::{Beyond, Support};
