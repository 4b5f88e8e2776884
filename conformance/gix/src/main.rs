//! gix as a client: `gixclient clone URL DIR [DEPTH]` makes a bare clone and
//! prints its refs, `gixclient refs URL` prints what the server lists.

use std::io::Write;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["clone", url, directory] => clone(url, directory, None),
        ["clone", url, directory, depth] => clone(url, directory, depth.parse().ok()),
        _ => Err("usage: gixclient clone URL DIR [DEPTH]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            let _ = writeln!(std::io::stderr(), "gixclient: {text}");
            ExitCode::FAILURE
        }
    }
}

fn clone(url: &str, directory: &str, depth: Option<u32>) -> Result<(), Failure> {
    let mut prepared = gix::prepare_clone_bare(url, directory)?;
    if let Some(depth) = depth.and_then(NonZeroU32::new) {
        prepared = prepared.with_shallow(gix::remote::fetch::Shallow::DepthAtRemote(depth));
    }
    let (repository, _) = prepared.fetch_only(gix::progress::Discard, &AtomicBool::new(false))?;
    let mut out = std::io::stdout().lock();
    for reference in repository.references()?.all()? {
        let mut reference = reference?;
        let name = reference.name().as_bstr().to_string();
        writeln!(out, "{} {name}", reference.peel_to_id()?)?;
    }
    Ok(())
}
