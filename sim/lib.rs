//! The world around a core: fake doors, faults, checkers.
#![forbid(unsafe_code)]
