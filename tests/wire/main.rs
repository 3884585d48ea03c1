//! The protocols, from outside: client against server in memory, with the bytes cut wherever they can be.

mod canon;
mod grpc_client;
mod http1;
mod http2;
mod http2_client;
mod memory;
mod tls;
mod tls_client;
