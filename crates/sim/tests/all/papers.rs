//! The worked examples of the papers, exact: unit ports, no scheduling interval. Every test names the section
//! or figure that it checks.

mod aalo;
mod django;
mod saath;
mod sincronia;
mod siphon;
mod varys;
