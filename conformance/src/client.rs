//! The clients: stock git, go-git, gix and raw bytes on a socket.

pub mod git;
pub mod gix;
pub mod gogit;
pub mod raw;
