//! Builds columns from rows of any types that serialize to their values.

use std::fmt::{self, Display};
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, StringDictionaryBuilder, UInt64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field};
use serde::ser::{self, Impossible, Serialize, SerializeTuple};
use weir_experiment::rows::{Column, RowWriter, ValueType};

use super::schema;

/// The values of columns, row by row. Equal texts are stored once.
pub struct Columns {
    header: Vec<Column>,
    builders: Vec<Builder>,
    /// The column of the next value.
    at: usize,
}

enum Builder {
    Text(StringDictionaryBuilder<Int32Type>),
    Integer(UInt64Builder),
    Number(Float64Builder),
}

/// A row does not fit the columns.
#[derive(Debug)]
pub struct RowError(String);

/// The field of a column.
pub fn field(&(name, kind): &Column) -> Field {
    let data_type = match kind {
        ValueType::Text => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        ValueType::Integer => DataType::UInt64,
        ValueType::Number => DataType::Float64,
    };
    Field::new(name, data_type, true)
}

impl Columns {
    /// Columns without rows.
    pub fn new(header: &[Column]) -> Columns {
        let builder = |(_, kind): &Column| match kind {
            ValueType::Text => Builder::Text(StringDictionaryBuilder::new()),
            ValueType::Integer => Builder::Integer(UInt64Builder::new()),
            ValueType::Number => Builder::Number(Float64Builder::new()),
        };
        Columns { header: header.to_vec(), builders: header.iter().map(builder).collect(), at: 0 }
    }

    /// All rows.
    pub fn finish(self) -> Result<RecordBatch, ArrowError> {
        let array = |builder| -> ArrayRef {
            let mut array: ArrayRef = match builder {
                Builder::Text(mut values) => Arc::new(values.finish()),
                Builder::Integer(mut values) => Arc::new(values.finish()),
                Builder::Number(mut values) => Arc::new(values.finish()),
            };
            // A builder has room for up to twice its values.
            array.shrink_to_fit();
            array
        };
        RecordBatch::try_new(schema(&self.header), self.builders.into_iter().map(array).collect())
    }

    fn next(&mut self) -> Result<&mut Builder, RowError> {
        let count = self.builders.len();
        self.at += 1;
        let builder = self.builders.get_mut(self.at - 1);
        builder.ok_or_else(|| RowError(format!("a row has more values than the {count} columns")))
    }

    fn wrong_value(&self, value: &dyn Display) -> RowError {
        let (name, kind) = self.header[self.at - 1];
        RowError(format!("column {name}: `{value}` is no value of the type {kind:?}"))
    }
}

impl RowWriter for Columns {
    type Error = RowError;

    fn write_row(&mut self, row: impl Serialize) -> Result<(), RowError> {
        self.at = 0;
        row.serialize(&mut *self)?;
        match self.at == self.builders.len() {
            true => Ok(()),
            false => Err(RowError(format!("a row has {} values, not {}", self.at, self.builders.len()))),
        }
    }
}

impl Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RowError {}

impl ser::Error for RowError {
    fn custom<T: Display>(message: T) -> RowError {
        RowError(message.to_string())
    }
}

/// A type that rows do not contain.
macro_rules! refuse {
    ($($method:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(fn $method(self, $(_: $argument),*) -> Result<$result, RowError> {
            Err(RowError(concat!("a row has a value of the wrong kind: ", stringify!($method)).to_owned()))
        })*
    };
}

/// Whole numbers of all sizes.
macro_rules! integers {
    ($($method:ident($kind:ty);)*) => {
        $(fn $method(self, value: $kind) -> Result<(), RowError> {
            self.serialize_u64(u64::from(value))
        })*
    };
}

impl<'a> ser::Serializer for &'a mut Columns {
    type Ok = ();
    type Error = RowError;
    type SerializeSeq = Impossible<(), RowError>;
    type SerializeTuple = Fields<'a>;
    type SerializeTupleStruct = Impossible<(), RowError>;
    type SerializeTupleVariant = Impossible<(), RowError>;
    type SerializeMap = Impossible<(), RowError>;
    type SerializeStruct = Impossible<(), RowError>;
    type SerializeStructVariant = Impossible<(), RowError>;

    fn serialize_u64(self, value: u64) -> Result<(), RowError> {
        match self.next()? {
            Builder::Integer(values) => values.append_value(value),
            _ => return Err(self.wrong_value(&value)),
        }
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Result<(), RowError> {
        match self.next()? {
            Builder::Number(values) => values.append_value(value),
            _ => return Err(self.wrong_value(&value)),
        }
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), RowError> {
        match self.next()? {
            Builder::Text(values) => values.append(value).map(|_| ()).map_err(ser::Error::custom),
            _ => Err(self.wrong_value(&value)),
        }
    }

    fn serialize_none(self) -> Result<(), RowError> {
        match self.next()? {
            Builder::Text(values) => values.append_null(),
            Builder::Integer(values) => values.append_null(),
            Builder::Number(values) => values.append_null(),
        }
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), RowError> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), RowError> {
        value.serialize(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Fields<'a>, RowError> {
        Ok(Fields(self))
    }

    integers! {
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
    }

    refuse! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_f32(f32) -> ();
        serialize_char(char) -> ();
        serialize_bytes(&[u8]) -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_unit_variant(&'static str, u32, &'static str) -> ();
        serialize_seq(Option<usize>) -> Impossible<(), RowError>;
        serialize_tuple_struct(&'static str, usize) -> Impossible<(), RowError>;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Impossible<(), RowError>;
        serialize_map(Option<usize>) -> Impossible<(), RowError>;
        serialize_struct(&'static str, usize) -> Impossible<(), RowError>;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Impossible<(), RowError>;
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), RowError> {
        Err(RowError("a row has a value of the wrong kind: a variant".to_owned()))
    }
}

/// The fields of a tuple, which are values of the following columns.
pub struct Fields<'a>(&'a mut Columns);

impl SerializeTuple for Fields<'_> {
    type Ok = ();
    type Error = RowError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), RowError> {
        value.serialize(&mut *self.0)
    }

    fn end(self) -> Result<(), RowError> {
        Ok(())
    }
}
