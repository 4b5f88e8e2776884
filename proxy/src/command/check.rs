//! `tidegate check`: one line per problem, all at once.

use super::{Exit, say};
use crate::config::Source;

pub(super) fn run(source: &Source) -> anyhow::Result<Exit> {
    match source.load() {
        Ok(_) => {
            say("ok");
            Ok(Exit::Ok)
        }
        Err(problems) => {
            for problem in problems {
                say(&problem.to_string());
            }
            Ok(Exit::Problems)
        }
    }
}
