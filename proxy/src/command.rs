//! The command line.

mod check;
mod fsck;
mod remote;
mod serve;

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, Overrides, Source};

/// Requests and reads of files share these threads; pack building and stalled
/// disks must not use them all up.
const BLOCKING_THREADS: usize = 512;

/// A pull-through cache for fleets that deploy from Git.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, propagate_version = true)]
struct Tidegate {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve clients
    Serve(Where),
    /// Tell everything that is wrong with the configuration
    Check(Where),
    /// Tell how a URL is routed, whose budget it has and what is cached of it
    Explain {
        /// `<host>/<path>` or the whole URL
        url: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Audit the data directory
    Fsck {
        /// Without a running server
        #[arg(long)]
        offline: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Remove a repository's content, now
    Purge {
        /// `<host>/<path>`
        repository: String,
        #[command(flatten)]
        place: Where,
    },
    /// Fetch a repository before anybody asks for it
    Warm {
        /// `<host>/<path>` or the whole URL
        url: String,
        #[command(flatten)]
        place: Where,
    },
}

/// Which tidegate is meant.
#[derive(Debug, Args)]
struct Where {
    /// The configuration file; without one the big public hosts are served
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory; without one `tidegate` in `$XDG_CACHE_HOME` or `~/.cache`
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where clients are served, as address:port [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where metrics and the API are, as address:port [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
}

impl Where {
    fn source(self) -> Source {
        let Self { config, data, listen, admin } = self;
        Source::new(config, Overrides { data, listen, admin })
    }
}

/// How a command ended; the numbers are part of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Ok = 0,
    Problems = 1,
}

/// Runs what the command line says. Wrong usage ends here with 2.
pub(crate) fn run() -> ExitCode {
    let ended = match Tidegate::parse().command {
        Command::Serve(place) => serve::run(place.source()),
        Command::Check(place) => Ok(check::run(&place.source())),
        Command::Explain { url, json, place } => remote::explain(&place.source(), &url, json),
        Command::Fsck { offline: true, place } => fsck::offline(&place.source()),
        Command::Fsck { offline: false, place } => remote::fsck(&place.source()),
        Command::Purge { repository, place } => remote::purge(&place.source(), &repository),
        Command::Warm { url, place } => remote::warm(&place.source(), &url),
    };
    let exit = ended.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        Exit::Problems
    });
    ExitCode::from(exit as u8)
}

/// Loads the configuration, or tells what is wrong with it.
fn load(source: &Source) -> Result<Config, Exit> {
    source.load().map_err(|problems| {
        for problem in problems {
            complain(&problem.to_string());
        }
        Exit::Problems
    })
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("tidegate")
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
}

/// A line for the operator. Nobody reading it is no reason to fail.
fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// A line about what is wrong.
fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
