//! Protocols without sockets: bytes in, bytes and messages out.
//!
//! Nothing in this room opens a descriptor, starts a thread or waits. The caller moves bytes
//! between a socket and a connection, and asks the connection what happened.
#![forbid(unsafe_code)]

pub mod canon;
mod duplex;
pub mod grpc_client;
mod grpc_frame;
pub mod grpc_status;
pub mod http1;
pub mod http2;
pub mod http_server;
mod outbox;
pub mod percent;
pub mod protobuf;
pub mod tls;
