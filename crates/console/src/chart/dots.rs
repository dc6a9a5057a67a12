//! Draws values as dots in rows, such as published values next to measured ones.

use std::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::Axis;
use super::legend::{Legend, Sample};
use super::{
    Area, DARK, Drawn, GRAY, SHAPES, Scale, Shape, WIDTH, color, draw_mark, number, text_style, text_width,
};

/// Pixels below the rows, for the labels and the title of the axis.
const AXIS_HEIGHT: i32 = 48;

/// The space between an end of the axis and the dots, as a part of its length.
const SPACE: f64 = 0.03;

/// Rows of dots over one axis.
pub struct DotPlot<'a> {
    /// Title of the axis, with its unit.
    pub title: &'a str,
    /// The scale of the axis.
    pub scale: Scale,
    /// A value that all others are compared with, drawn as a line.
    pub reference: Option<f64>,
    /// The series that the dots belong to.
    pub series: Vec<DotSeries>,
    /// From top to bottom.
    pub rows: Vec<DotRow>,
}

/// Dots of one meaning.
#[derive(Debug, Clone)]
pub struct DotSeries {
    /// The name.
    pub name: String,
    /// Whether a paper publishes the values. Published dots are hollow.
    pub is_published: bool,
}

impl DotSeries {
    /// The series of published values.
    pub fn published(name: &str) -> DotSeries {
        DotSeries { name: name.to_owned(), is_published: true }
    }

    /// A series of measured values.
    pub fn measured(name: &str) -> DotSeries {
        DotSeries { name: name.to_owned(), is_published: false }
    }
}

/// A row of dots.
#[derive(Debug, Clone)]
pub struct DotRow {
    /// The name at the left.
    pub name: String,
    /// By series; a row without dots is a heading.
    pub dots: Vec<Option<Dot>>,
}

/// A value with its interval.
#[derive(Debug, Clone, Copy)]
pub struct Dot {
    /// The value.
    pub value: f64,
    /// The distance from the value to each end of its interval; 0 without one.
    pub half_width: f64,
}

impl From<f64> for Dot {
    fn from(value: f64) -> Dot {
        Dot { value, half_width: 0.0 }
    }
}

impl DotRow {
    /// A row of values without intervals, by series.
    pub fn new(name: impl Into<String>, values: &[Option<f64>]) -> DotRow {
        DotRow { name: name.into(), dots: values.iter().map(|value| value.map(Dot::from)).collect() }
    }

    /// A row with a title for the rows below.
    pub fn heading(name: impl Into<String>) -> DotRow {
        DotRow { name: name.into(), dots: Vec::new() }
    }
}

impl DotPlot<'_> {
    /// The plot as SVG; `None` without values that the axis can show.
    pub fn to_svg(&self) -> Option<String> {
        let dots = self.rows.iter().flat_map(|row| &row.dots).flatten();
        // Dots show whether an interval ends below 0 or is infinite; a logarithmic axis does not.
        let ends = dots.flat_map(|dot| {
            let ends = [dot.value - dot.half_width, dot.value, dot.value + dot.half_width];
            ends.map(|end| if self.scale == Scale::Log && end < dot.value / 2.0 { dot.value } else { end })
        });
        let axis = Axis::over(self.scale, ends.chain(self.reference))?.with_space(SPACE);
        let mut svg = String::new();
        self.draw(&mut svg, axis).expect("a string takes any SVG");
        Some(svg)
    }

    /// The shape and color of a series.
    fn style(&self, position: usize) -> (Shape, RGBColor) {
        let measured = self.series[..position].iter().filter(|series| !series.is_published).count();
        match self.series[position].is_published {
            true => (Shape::HollowDiamond, DARK),
            false => (SHAPES[measured % SHAPES.len()], color(measured)),
        }
    }

    fn draw(&self, svg: &mut String, axis: Axis) -> Drawn {
        let mut legend = Legend::default();
        for (position, series) in self.series.iter().enumerate() {
            let (shape, color) = self.style(position);
            legend.add(Sample::Mark(shape, color), &series.name);
        }
        // Dots of one row are below each other, so that equal values do not hide each other.
        let row_height = 14 + 5 * self.series.len() as i32;
        let top = legend.height() + 8;
        let rows_height = row_height * self.rows.len() as i32;
        let names_width = self.rows.iter().map(|row| text_width(&row.name)).max().unwrap_or(0) + 24;
        let root = SVGBackend::with_string(svg, (WIDTH, (top + rows_height + AXIS_HEIGHT + 8) as u32))
            .into_drawing_area();
        root.fill(&WHITE)?;
        // It has no lines.
        legend.draw(&root, &mut String::new())?;
        let mut chart = ChartBuilder::on(&root)
            .margin_top(top)
            .margin_bottom(8)
            .margin_right(24)
            .x_label_area_size(AXIS_HEIGHT)
            .y_label_area_size(names_width.min(WIDTH as i32 / 2))
            .build_cartesian_2d(axis, 0.0..1.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .x_desc(self.title)
            .label_style(("sans-serif", 15, &DARK))
            .axis_desc_style(("sans-serif", 16, &DARK))
            .axis_style(GRAY)
            .bold_line_style(GRAY.mix(0.3))
            .light_line_style(TRANSPARENT)
            .x_labels(10)
            .x_label_formatter(&|value| number(*value))
            .draw()?;
        let x_of = |value: f64| chart.backend_coord(&(value, 0.0)).0;
        let (columns, _) = chart.plotting_area().get_pixel_range();
        if let Some(reference) = self.reference {
            let x = x_of(reference);
            root.draw(&PathElement::new([(x, top), (x, top + rows_height)], DARK.stroke_width(1)))?;
        }
        for (row, first_pixel) in self.rows.iter().zip((top..).step_by(row_height as usize)) {
            self.draw_row(&root, row, first_pixel + row_height / 2, columns.clone(), x_of)?;
        }
        root.present()?;
        Ok(())
    }

    /// Draws a row around the pixel `middle` of the y axis. The chart has these columns of pixels, and a value is at `x_of`.
    fn draw_row(
        &self,
        area: &Area<'_>,
        row: &DotRow,
        middle: i32,
        columns: Range<i32>,
        x_of: impl Fn(f64) -> i32,
    ) -> Drawn {
        let name = row.name.as_str();
        if row.dots.is_empty() {
            let font = ("sans-serif", 16, FontStyle::Bold).into();
            let style = TextStyle { font, ..text_style(DARK, HPos::Left) };
            area.draw(&Text::new(name, (8, middle), style))?;
            return Ok(());
        }
        area.draw(&Text::new(name, (columns.start - 10, middle), text_style(DARK, HPos::Right)))?;
        area.draw(&PathElement::new([(columns.start, middle), (columns.end, middle)], GRAY.mix(0.2)))?;
        for (position, dot) in row.dots.iter().enumerate() {
            let Some(dot) = dot else { continue };
            let (shape, color) = self.style(position);
            let y = middle + 5 * position as i32 - 5 * (self.series.len() as i32 - 1) / 2;
            if dot.half_width > 0.0 {
                let ends = [dot.value - dot.half_width, dot.value + dot.half_width].map(|end| (x_of(end), y));
                area.draw(&PathElement::new(ends, color.stroke_width(1)))?;
            }
            draw_mark(area, (x_of(dot.value), y), shape, color)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(rows: Vec<DotRow>) -> DotPlot<'static> {
        let series = vec![DotSeries::published("published"), DotSeries::measured("measured")];
        DotPlot { title: "speedup", scale: Scale::Log, reference: Some(1.0), series, rows }
    }

    #[test]
    fn plot_draws_each_dot_and_the_names() {
        let interval = Dot { value: 3.0, half_width: 1.0 };
        let rows = vec![
            DotRow::heading("Fig. 9"),
            DotRow::new("over Aalo", &[Some(1.5), Some(2.0)]),
            DotRow { name: "over Varys".to_owned(), dots: vec![None, Some(interval)] },
        ];
        let svg = plot(rows).to_svg().unwrap();
        for name in ["published", "measured", "speedup", "Fig. 9", "over Aalo", "over Varys"] {
            assert_eq!(svg.matches(&format!("\n{name}\n")).count(), 1, "{name}: {svg}");
        }
        // Two measured dots, and the sample of the legend.
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
    }

    #[test]
    fn plot_without_values_is_none() {
        let plot = DotPlot { reference: None, ..plot(vec![DotRow::new("none", &[None, Some(0.0)])]) };
        assert!(plot.to_svg().is_none());
    }
}
