//! `weir reproduce django`: the evaluation of Django (JPDC '21).

mod prediction;

use super::doc;
use crate::args;
use crate::failure::Failure;
use crate::output::Sink;
use crate::progress::Progress;

/// Runs `weir reproduce django`.
///
/// # Errors
/// Whatever ends it early.
pub fn django(args: &args::DjangoReproduction) -> Result<(), Failure> {
    let sink = Sink::new(args.making.out.as_deref())?;
    let progress = Progress::new(args.making.running.quiet);
    let mut out = head(args);
    out.push_str(&prediction::section(!args.no_timing, &progress)?);
    sink.fill(doc::tidy(out).as_bytes())
}

fn head(args: &args::DjangoReproduction) -> String {
    let timing = if args.no_timing { " --no-timing" } else { "" };
    format!(
        "# Django, published and measured\n\n\
         Made by `weir reproduce django --out docs/results/django.md{timing}`. The paper is Zheng et al., \"Django: Bilateral coflow \
         scheduling with predictive concurrent connections\", JPDC '21. Its numbers are quoted with the place where they stand; every other \
         number was computed by that one command, and so was every \"yes\" and \"no\" and every sentence that says what comes out.\n\n"
    )
}
