//! Stock git is the reference: same repository, same request, same answer.

mod fetches;
mod filters;
mod fixture;
mod history;
mod law;
mod odd;
mod shallows;
