//! Protocols without sockets: bytes in, bytes and messages out.
#![forbid(unsafe_code)]
