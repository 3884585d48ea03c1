//! Bounds of everything that could grow.

use crate::time::Span;

/// Notes in one step: more means that two managers talk in a circle.
pub const NOTES_PER_STEP_MAX: usize = 100_000;
/// Pods that may be configured, all sources together.
pub const PODS_MAX: usize = 1_000;
/// Lines of Kubernetes events kept in memory.
pub const EVENTS_KEPT_MAX: usize = 256;
/// A status message taken from a runtime or a file, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4_096;
/// How long a relist may take before the PLEG is unhealthy.
pub const PLEG_UNHEALTHY_AFTER: Span = Span::from_secs(180);
/// How long no pod can be worked on before the agent counts as broken, whatever `syncFrequency` is.
pub const SYNC_REST_MIN: Span = Span::from_secs(300);
/// How long the last good runtime status counts.
pub const RUNTIME_DOWN_AFTER: Span = Span::from_secs(30);
