//! HTTP/2 by h2, polled by hand: the server's side of our ports, and the client's side under gRPC and under plain
//! requests.

pub mod client;
pub(crate) mod link;
pub(crate) mod server;
