//! The appliance. Here rooms are put together; what they do is theirs.

mod command;
mod config;
mod data_dir;
mod logging;
mod reload;
mod wiring;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}
