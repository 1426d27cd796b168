//! The cost of an epoch with each loader and number of cores.

use super::{Curve, Demand, of_cores};
use crate::report::{Columns, ReportTable};
use crate::spread::Spread;

/// Prices of a core and a GPU for an hour, and the images of an epoch.
#[derive(Clone, Copy)]
pub(super) struct Costs {
    pub(super) core: f64,
    pub(super) gpu: f64,
    pub(super) images: u64,
}

/// An epoch of a step with a loader and a number of cores.
struct Cost<'a> {
    step: &'a str,
    loader: &'a str,
    cores: usize,
    seconds: f64,
    cost: f64,
}

impl Costs {
    fn all<'a>(self, cores: &'a [usize], curves: &'a [Curve], demand: &'a Demand) -> impl Iterator<Item = Cost<'a>> {
        let of = move |curve: &'a Curve, (rates, &cores): (&Vec<f64>, &usize)| {
            let seconds = self.images as f64 / Spread::median_of(rates)?.min(demand.images_per_s);
            let cost = seconds / 3_600.0 * (self.gpu + self.core * cores as f64);
            Some(Cost { step: &demand.name, loader: &curve.name, cores, seconds, cost })
        };
        curves.iter().flat_map(move |curve| curve.rates.iter().zip(cores).filter_map(move |case| of(curve, case)))
    }

    pub(super) fn answer(self, cores: &[usize], curves: &[Curve], demand: &Demand) -> Option<String> {
        let least = self.all(cores, curves, demand).min_by(|a, b| a.cost.total_cmp(&b.cost))?;
        let Cost { step, loader, cores, cost, .. } = least;
        let (images, cores, cost) = (self.images, of_cores(cores), price(cost));
        Some(format!("{step}: an epoch of {images} images costs least on {cores} with {loader}: {cost}."))
    }

    pub(super) fn table(self, cores: &[usize], curves: &[Curve], demands: &[Demand]) -> ReportTable {
        let (images, core, gpu) = (self.images, price(self.core), price(self.gpu));
        let title = format!("Cost of an epoch of {images} images, at {core} a core and {gpu} a GPU for an hour");
        Columns::new()
            .text("step", |row: &Cost<'_>| row.step)
            .text("loader", |row| row.loader)
            .count("cores", |row| row.cores)
            .number("s an epoch", 1, |row| row.seconds)
            .text("cost", |row| price(row.cost))
            .table("cost", title, demands.iter().flat_map(|demand| self.all(cores, curves, demand)))
    }
}

/// A price with two digits that count, in no currency.
pub(super) fn price(price: f64) -> String {
    let decimals = if price > 0.0 { (1.0 - price.log10().floor()).clamp(2.0, 8.0) as usize } else { 2 };
    format!("{price:.decimals$}")
}
