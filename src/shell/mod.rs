pub mod tape;
pub mod yaml;
