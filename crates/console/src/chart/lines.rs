//! Draws lines over two axes.

use plotters::prelude::*;

use super::axis::Axis;
use super::legend::{Legend, Sample};
use super::line_style::{draw_styled, insert_elements, mark_places};
use super::{Area, DARK, Drawn, GRAY, SHAPES, Scale, Shape, WIDTH, color, draw_mark, number};

/// The height of a chart without its legend, in pixels.
const HEIGHT: i32 = 380;

/// Space at the right for half of the last label of the x axis, in pixels.
const LABEL_SPACE: u32 = 16;

/// The most points of a line. More would not be visible.
const MAX_POINTS: usize = 400;

/// A line chart.
#[derive(Default)]
pub struct LineChart<'a> {
    /// Title of the x axis, with its unit.
    pub x_title: &'a str,
    /// Title of the y axis.
    pub y_title: &'a str,
    /// Labels at 0, 1 and so on, if the x axis has no numbers.
    pub x_labels: &'a [String],
    /// The scale of the x axis.
    pub x_scale: Scale,
    /// The lowest value of the y axis.
    pub y_min: f64,
    /// The highest value of the y axis.
    pub y_max: f64,
    /// Points of each line, ascending in x; in a chart with a logarithmic axis, above 0.
    pub lines: Vec<Vec<(f64, f64)>>,
    /// Intervals of each line, in its color: x, and the ends on the y axis. Those of several lines are drawn next to each other.
    pub intervals: Vec<Vec<(f64, f64, f64)>>,
    /// The names of the lines, for an image outside of a report: it has a legend and a white background.
    pub names: &'a [String],
    /// Points next to the lines. In an image, the legend has their names.
    pub marks: Vec<Marks>,
}

/// Points that are drawn as marks.
#[derive(Debug, Clone)]
pub struct Marks {
    /// Their name in the legend.
    pub name: String,
    /// The position of the line whose color they have; `None` for points of no line.
    pub line: Option<usize>,
    /// Whether a paper publishes them. Published points are hollow.
    pub is_published: bool,
    /// The points.
    pub points: Vec<(f64, f64)>,
}

impl Marks {
    /// Points that a paper publishes.
    pub fn published(name: impl Into<String>, line: Option<usize>, points: &[(f64, f64)]) -> Marks {
        Marks { name: name.into(), line, is_published: true, points: points.to_vec() }
    }

    fn style(&self, position: usize) -> (Shape, RGBColor) {
        let shape = if self.is_published { Shape::HollowDiamond } else { SHAPES[position % SHAPES.len()] };
        (shape, self.line.map_or(DARK, color))
    }
}

/// The line of a distribution: the part of the values that are at most x. It rises at each value in a step.
pub fn distribution(values: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let part = |rank: usize| rank as f64 / sorted.len() as f64;
    sorted
        .iter()
        .enumerate()
        .flat_map(|(rank, &value)| [(value, part(rank)), (value, part(rank + 1))])
        .collect()
}

/// The distance between the intervals of two lines at one value in pixels, and the most pixels from the value to an interval. Intervals at
/// one place would hide each other.
const INTERVAL_DISTANCE: f64 = 3.0;
const MAX_INTERVAL_SHIFT: f64 = 6.0;

/// The pixels from a value to the interval of the line at a position, of `count` lines.
fn interval_shift(position: usize, count: usize) -> i32 {
    let steps = count.saturating_sub(1) as f64;
    let distance = INTERVAL_DISTANCE.min(2.0 * MAX_INTERVAL_SHIFT / steps.max(1.0));
    ((position as f64 - steps / 2.0) * distance).round() as i32
}

/// Draws a vertical line from a value to another one, with a short line at each end.
fn draw_interval(area: &Area<'_>, low: (i32, i32), high: (i32, i32), color: RGBColor) -> Drawn {
    let cap = |(x, y): (i32, i32)| vec![(x - 4, y), (x + 4, y)];
    for line in [vec![low, high], cap(low), cap(high)] {
        area.draw(&PathElement::new(line, color.stroke_width(1)))?;
    }
    Ok(())
}

impl LineChart<'_> {
    /// The chart as SVG; `None` without points.
    pub fn to_svg(&self) -> Option<String> {
        let points = self.lines.iter().chain(self.marks.iter().map(|marks| &marks.points)).flatten();
        let x_axis = Axis::over(self.x_scale, points.map(|point| point.0))?;
        let (mut svg, mut dashed_lines) = (String::new(), String::new());
        self.draw(&mut svg, x_axis, &mut dashed_lines).expect("a string takes any SVG");
        insert_elements(&mut svg, &dashed_lines);
        Some(svg)
    }

    fn x_label(&self, value: f64) -> String {
        if self.x_labels.is_empty() {
            return number(value);
        }
        let is_whole = (value - value.round()).abs() < 1e-6 && value > -0.5;
        let label = is_whole.then(|| self.x_labels.get(value.round() as usize)).flatten();
        label.cloned().unwrap_or_default()
    }

    /// An image has a legend.
    fn legend(&self) -> Legend {
        let mut legend = Legend::default();
        self.names.iter().enumerate().for_each(|(position, name)| legend.add(Sample::Line(position), name));
        for (position, marks) in self.marks.iter().enumerate() {
            let (shape, color) = marks.style(position);
            legend.add(Sample::Mark(shape, color), &marks.name);
        }
        legend
    }

    fn draw(&self, svg: &mut String, x_axis: Axis, dashed_lines: &mut String) -> Drawn {
        let legend = self.legend();
        let is_image = legend.height() > 0;
        let height = (HEIGHT + legend.height()) as u32;
        let root = SVGBackend::with_string(svg, (WIDTH + LABEL_SPACE, height)).into_drawing_area();
        let text = if is_image { DARK } else { GRAY };
        if is_image {
            root.fill(&WHITE)?;
            legend.draw(&root, dashed_lines)?;
        }
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .margin_right(8 + LABEL_SPACE)
            .margin_top(8 + legend.height())
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(x_axis, self.y_min..self.y_max)?;
        chart
            .configure_mesh()
            .x_desc(self.x_title)
            .y_desc(self.y_title)
            .label_style(("sans-serif", if is_image { 15 } else { 13 }, &text))
            .axis_desc_style(("sans-serif", if is_image { 16 } else { 14 }, &text))
            .axis_style(GRAY)
            .bold_line_style(GRAY.mix(0.3))
            .light_line_style(TRANSPARENT)
            .x_labels(if self.x_labels.is_empty() { 10 } else { self.x_labels.len().clamp(2, 20) })
            .x_label_formatter(&|value| self.x_label(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()?;
        let pixel = |point: &(f64, f64)| chart.backend_coord(point);
        for (position, line) in self.lines.iter().enumerate() {
            let pixels: Vec<(i32, i32)> = thin_out(line).iter().map(pixel).collect();
            draw_styled(&root, &pixels, &mark_places(&pixels, position), position, dashed_lines)?;
        }
        for (position, intervals) in self.intervals.iter().enumerate() {
            let shift = interval_shift(position, self.intervals.len());
            for &(x, low, high) in intervals {
                let [low, high] = [low, high].map(|y| {
                    let (x, y) = pixel(&(x, y.clamp(self.y_min, self.y_max)));
                    (x + shift, y)
                });
                draw_interval(&root, low, high, color(position))?;
            }
        }
        for (position, marks) in self.marks.iter().enumerate() {
            let (shape, color) = marks.style(position);
            marks.points.iter().map(pixel).try_for_each(|pixel| draw_mark(&root, pixel, shape, color))?;
        }
        root.present()?;
        Ok(())
    }
}

/// At most [`MAX_POINTS`] of the points, with the first and the last.
fn thin_out(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let last = points.len() - 1;
    (0..MAX_POINTS).map(|at| points[at * last / (MAX_POINTS - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::line_style::{css_color, line_sample};
    use super::*;

    fn chart(lines: Vec<Vec<(f64, f64)>>) -> LineChart<'static> {
        LineChart {
            x_title: "seconds",
            y_title: "part",
            x_scale: Scale::Log,
            y_max: 1.0,
            lines,
            ..LineChart::default()
        }
    }

    #[test]
    fn chart_without_points_is_none() {
        assert_eq!(chart(vec![Vec::new()]).to_svg(), None);
    }

    #[test]
    fn chart_draws_each_line_in_its_color() {
        let svg =
            chart((1..=8).map(|end| vec![(0.1, 0.0), (f64::from(end), 1.0)]).collect()).to_svg().unwrap();
        for position in 0..7 {
            let color = css_color(position);
            assert!(svg.to_lowercase().contains(&color), "{color}: {svg}");
        }
        assert!(svg.contains("seconds") && svg.contains("part"), "{svg}");
    }

    #[test]
    fn lines_of_one_color_differ_in_dashes_and_marks() {
        let samples: Vec<String> = (0..35).map(line_sample).collect();
        for (position, sample) in samples.iter().enumerate() {
            assert!(sample.to_lowercase().contains(&css_color(position)), "{sample}");
            assert!(
                sample.ends_with("</svg>\n") && !samples[..position].contains(sample),
                "{position}: {sample}"
            );
        }
        assert_eq!(samples.iter().filter(|sample| sample.contains("stroke-dasharray")).count(), 3 * 7);
        // A dashed line in a chart is one element.
        let svg = chart((0..9).map(|_| vec![(0.1, 0.0), (1.0, 1.0)]).collect()).to_svg().unwrap();
        assert_eq!(svg.matches("stroke-dasharray=\"8 5\"").count(), 2);
    }

    #[test]
    fn intervals_end_at_the_edge_of_the_chart() {
        let mut chart = chart(vec![vec![(1.0, 0.5), (10.0, 0.5)]]);
        let without = chart.to_svg().unwrap().matches("<polyline").count();
        chart.intervals = vec![vec![(1.0, -5.0, 5.0)]];
        let svg = chart.to_svg().unwrap();
        assert_eq!(svg.matches("<polyline").count(), without + 3);
    }

    #[test]
    fn intervals_of_several_lines_are_a_few_pixels_apart() {
        assert_eq!([0, 1, 2].map(|position| interval_shift(position, 3)), [-3, 0, 3]);
        assert_eq!(interval_shift(0, 1), 0);
        for count in 2..20 {
            let shifts: Vec<i32> = (0..count).map(|position| interval_shift(position, count)).collect();
            assert!(shifts.iter().all(|shift| (-6..=6).contains(shift)), "{shifts:?}");
            assert!(shifts.is_sorted() && shifts[0] < shifts[count - 1], "{shifts:?}");
        }
    }

    #[test]
    fn distribution_rises_in_steps() {
        assert_eq!(distribution(&[3.0, 1.0]), [(1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0)]);
    }

    #[test]
    fn single_point_has_a_range() {
        assert!(chart(vec![vec![(2.0, 1.0)]]).to_svg().is_some());
    }

    #[test]
    fn long_line_keeps_its_ends() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|at| (f64::from(at), 0.0)).collect();
        let kept = thin_out(&points);
        assert_eq!((kept.len(), kept[0], kept[MAX_POINTS - 1]), (MAX_POINTS, points[0], points[9_999]));
    }
}
