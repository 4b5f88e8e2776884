//! `tidegate check`: one line per problem, all at once.

use super::{Exit, say};
use crate::config::Source;

pub(super) fn run(source: &Source) -> Exit {
    match source.load() {
        Ok(_) => {
            say("ok");
            Exit::Ok
        }
        Err(problems) => {
            for problem in problems {
                say(&problem.to_string());
            }
            Exit::Problems
        }
    }
}
