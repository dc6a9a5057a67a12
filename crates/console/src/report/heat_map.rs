//! Draws tables of values from 0 to 1 as images, with a pixel per value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use png::{BitDepth, ColorType, Encoder};

/// The colors of values above 0, from the lowest to the highest: viridis, which people with any color vision can read.
const COLORS: [[u8; 3]; 5] = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

/// The number of colors in an image. Color 0 is transparent, for the value 0.
const LEVELS: usize = 32;

/// The maximum number of rows of an image. A row of an image with fewer rows than the table is the mean of several rows.
pub const MAX_ROWS: usize = 600;

/// The image of a table as the address of an image in a page; `None` without values. Rows have equal lengths.
pub fn data_url(rows: &[Vec<f64>]) -> Option<String> {
    let columns = rows.first().map_or(0, Vec::len);
    if columns == 0 {
        return None;
    }
    let per_row = rows.len().div_ceil(MAX_ROWS);
    let pixels: Vec<u8> = rows
        .chunks(per_row)
        .flat_map(|group| (0..columns).map(|column| mean_of(group, column)).map(level))
        .collect();
    let mut image = Vec::new();
    let mut encoder = Encoder::new(&mut image, columns as u32, (pixels.len() / columns) as u32);
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_palette((0..=LEVELS).flat_map(color).collect::<Vec<u8>>());
    encoder.set_trns(&[0][..]);
    let mut writer = encoder.write_header().expect("a list takes any bytes");
    writer.write_image_data(&pixels).expect("the image has a byte per pixel");
    writer.finish().expect("a list takes any bytes");
    Some(format!("data:image/png;base64,{}", STANDARD.encode(image)))
}

fn mean_of(rows: &[Vec<f64>], column: usize) -> f64 {
    rows.iter().map(|row| row[column]).sum::<f64>() / rows.len() as f64
}

/// The color of a value, from 1 for values just above 0.
fn level(value: f64) -> u8 {
    (value.clamp(0.0, 1.0) * LEVELS as f64).ceil() as u8
}

fn color(level: usize) -> [u8; 3] {
    let position = level.saturating_sub(1) as f64 / (LEVELS - 1) as f64 * (COLORS.len() - 1) as f64;
    let below = (position as usize).min(COLORS.len() - 2);
    let fraction = position - below as f64;
    [0, 1, 2].map(|channel| {
        let [low, high] = [below, below + 1].map(|at| f64::from(COLORS[at][channel]));
        (low + (high - low) * fraction).round() as u8
    })
}

/// The colors as a CSS gradient from left to right.
pub fn css_gradient() -> String {
    let stops = COLORS.map(|[red, green, blue]| format!("#{red:02x}{green:02x}{blue:02x}"));
    format!("linear-gradient(to right, {})", stops.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Size and color numbers of an image.
    fn decode(url: &str) -> (u32, u32, Vec<u8>) {
        let bytes = STANDARD.decode(url.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
        let mut decoder = png::Decoder::new(Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::IDENTITY);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (info.width, info.height, pixels)
    }

    #[test]
    fn each_value_is_a_pixel() {
        let url = data_url(&[vec![0.0, 1e-9, 0.5], vec![1.0, 7.0, 0.5]]).unwrap();
        assert_eq!(decode(&url), (3, 2, vec![0, 1, 16, 32, 32, 16]));
        assert_eq!(data_url(&[]), None);
        assert_eq!(data_url(&[Vec::new()]), None);
    }

    #[test]
    fn many_rows_share_a_pixel() {
        let rows: Vec<Vec<f64>> = (0..1500).map(|row| vec![f64::from(row / 750)]).collect();
        let (width, height, pixels) = decode(&data_url(&rows).unwrap());
        assert_eq!((width, height), (1, 500));
        assert_eq!((pixels[0], pixels[499]), (0, 32));
    }

    #[test]
    fn colors_begin_and_end_with_those_of_the_palette() {
        assert_eq!((color(1), color(LEVELS)), (COLORS[0], COLORS[4]));
    }
}
