//! Every decision of the node agent, as one pure function of state: `core.step(now, event) -> effects`.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
