"""The allow-list of queries on Spark: the classes of Spark that a query may become.

What is on no list is refused, as is whatever a newer Spark brings. Nothing that is allowed reads
files, addresses, settings, the environment or the time of day by itself, runs code that the query
names, or changes anything. ``tests/security/test_allowed.py`` compares the lists with the Spark at
hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


def _classes(by_package: Mapping[str, str]) -> frozenset[str]:
    """The full names of classes, which are given by package."""
    return frozenset(
        f"{package}.{name}" for package, names in by_package.items() for name in names.split()
    )


_SPARK: Final = "org.apache.spark.sql."
_CATALYST: Final = _SPARK + "catalyst."

NODES: Final = _classes(
    {
        _CATALYST + "analysis": """
            ResolvedInlineTable UnresolvedHaving UnresolvedInlineTable UnresolvedQualify
            UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTableValuedFunction
            UnresolvedTVFAliases
        """,
        _CATALYST + "plans.logical": """
            Aggregate AsOfJoin CTERelationDef CTERelationRef Distinct Except EventTimeWatermark
            Expand Filter Generate GlobalLimit Intersect Join LateralJoin LocalLimit LocalRelation
            Offset OneRowRelation Pivot Project Repartition Sort SubqueryAlias Union UnresolvedWith
            Unpivot View Window WithCTE WithWindowDefinition
        """,
        _SPARK + "execution": "LogicalRDD",
        _SPARK + "execution.datasources.v2": "DataSourceV2Relation",
    }
)
"""Nodes of a plan, as it is parsed and as it is analysed."""

EXPRESSIONS: Final = _classes(
    {
        _CATALYST + "analysis": """
            MultiAlias ResolvedStar TempResolvedColumn UnresolvedAlias UnresolvedAttribute
            UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator UnresolvedOrdinal
            UnresolvedStar UnresolvedStarExceptOrReplace UnresolvedWithinGroup
        """,
        _CATALYST + "expressions": """
            Abs Acos Acosh Add AddMonths AesDecrypt Alias And ApproxTopKEstimate
            ArrayAggregate ArrayAppend ArrayBinarySearch ArrayCompact ArrayContains
            ArrayDistinct ArrayExcept ArrayExists ArrayFilter ArrayForAll ArrayInsert
            ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove
            ArrayRepeat ArraySize ArraySort ArrayTransform ArrayUnion ArraysOverlap ArraysZip
            Ascii Asin Asinh AssertTrue AtLeastNNonNulls Atan Atan2 Atanh AttributeReference
            BRound Base32 Base64 Between Bin BinaryPad BitLength BitmapAndAgg
            BitmapBitPosition BitmapBucketNumber BitmapConstructAgg BitmapCount BitmapOrAgg
            BitwiseAnd BitwiseCount BitwiseGet BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast
            CastTimestampNTZToLong Cbrt Ceil CheckOverflow CheckOverflowInSum Chr Coalesce
            Collate Collation CollationKey CommonExpressionDef CommonExpressionRef Concat
            ConcatWs Contains Conv ConvertTimezone Cos Cosh Cot CounterDiff
            CounterDiffWithStartTime Crc32 CreateArray CreateMap CreateNamedStruct Csc
            CsvToStructs Cube CumeDist CurrentRow DateAdd DateAddInterval DateAddYMInterval
            DateDiff DateFormatClass DateFromUnixDate DateSub DatetimeSub DayName DayOfMonth
            DayOfWeek DayOfYear DecimalAddNoOverflowCheck DecimalDivideWithOverflowCheck
            DecimalSubtractNoOverflowCheck Decode DenseRank Divide DivideDTInterval
            DivideInterval DivideYMInterval DropField ElementAt Elt Encode EndsWith EqualNull
            EqualNullSafe EqualTo EulerNumber Exists Exp Explode Expm1 Extract
            ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes
            ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears
            ExtractIntervalDays ExtractIntervalHours ExtractIntervalMinutes
            ExtractIntervalMonths ExtractIntervalSeconds ExtractIntervalYears Factorial
            FindInSet Flatten Floor FormatNumber FormatString FromUTCTimestamp FromUnixTime
            GeneratorOuter Get GetArrayItem GetArrayStructFields GetJsonObject GetMapValue
            GetStructField GetTimestamp GreaterThan GreaterThanOrEqual Greatest Grouping
            GroupingID GroupingSets Hex HllSketchEstimate HllUnion Hmac Hour HoursOfTime Hypot
            ILike If In InSubquery InitCap Inline IntegralDivide IsNaN IsNotNull IsNull
            IsValidUTF8 JaroWinkler JsonObjectKeys JsonToStructs JsonTuple KllSketchGetNBigint
            KllSketchGetNDouble KllSketchGetNFloat KllSketchGetQuantileBigint
            KllSketchGetQuantileDouble KllSketchGetQuantileFloat KllSketchGetRankBigint
            KllSketchGetRankDouble KllSketchGetRankFloat KllSketchMergeBigint
            KllSketchMergeDouble KllSketchMergeFloat KllSketchToStringBigint
            KllSketchToStringDouble KllSketchToStringFloat KnownFloatingPointNormalized
            KnownNotContainsNull KnownNotNull KnownNullable Lag LambdaFunction LastDay
            LateralColumnAliasReference LateralSubquery Lead Least Left Length
            LengthOfJsonArray LessThan LessThanOrEqual Levenshtein Like LikeAll LikeAny
            ListQuery Literal Log Log10 Log1p Log2 Logarithm Lower Luhncheck MakeDTInterval
            MakeDate MakeDecimal MakeInterval MakeTime MakeTimestamp MakeTimestampFromDateTime
            MakeTimestampLTZ MakeTimestampLTZNanos MakeTimestampNTZ MakeTimestampNTZNanos
            MakeValidUTF8 MakeYMInterval MapConcat MapContainsKey MapEntries MapFilter
            MapFromArrays MapFromEntries MapKeys MapSort MapValues MapZipWith Mask Md5
            MicrosToTimestamp MillisToTimestamp Minute MinutesOfTime Month MonthName
            MonthsBetween Multiply MultiplyDTInterval MultiplyInterval MultiplyYMInterval
            Murmur3Hash NTile NaNvl NamedArgumentExpression NamedLambdaVariable
            NanosToTimestamp NextDay Not NotLikeAll NotLikeAny NthValue NullIf NullIfResult
            NullIfZero NullIndex Nvl Nvl2 OctetLength Or OuterReference Overlay ParseToDate
            ParseToTimestamp ParseUrl PercentRank Pi Pmod PosExplode Pow
            PreciseTimestampConversion PythonUDAF PythonUDF Quarter Quote RLike RaiseError
            Rank RegExpCount RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace
            RegExpSubStr Remainder ResolvedCollation Reverse Right Rint Rollup Round RoundCeil
            RoundFloor RowNumber ScalaUDF ScalarSubquery SchemaOfCsv SchemaOfJson Sec Second
            SecondWithFraction SecondWithFractionNanos SecondsOfTime SecondsOfTimeWithFraction
            SecondsToTimestamp SemiStructuredExtract Sentences Sequence SessionWindow Sha1
            Sha2 ShiftLeft ShiftRight ShiftRightUnsigned Signum Sin Sinh Size Slice SortArray
            SortOrder SoundEx SpecifiedWindowFrame SplitPart Sqrt Stack StartsWith
            StringDecode StringInstr StringInstrWithOccurrence StringLPad StringLocate
            StringRPad StringRepeat StringReplace StringSpace StringSplit StringSplitSQL
            StringToMap StringTranslate StringTrim StringTrimBoth StringTrimLeft
            StringTrimRight StructsToCsv StructsToJson StructsToXml Substring SubstringIndex
            Subtract SubtractDates SubtractTimes SubtractTimestamps Tan Tanh ThetaDifference
            ThetaIntersection ThetaSketchEstimate ThetaUnion TimeAddInterval TimeBucket
            TimeDiff TimeFromMicros TimeFromMillis TimeFromSeconds TimeToMicros TimeToMillis
            TimeToSeconds TimeTrunc TimeWindow TimestampAdd TimestampAddInterval
            TimestampAddYMInterval TimestampDiff ToBinary ToCharacter ToDegrees ToNumber
            ToPrettyString ToRadians ToTime ToUTCTimestamp ToUnixTimestamp TransformKeys
            TransformValues TranspiledPythonUDF TranspiledUDFParameter TruncDate
            TruncTimestamp TryAdd TryAesDecrypt TryDivide TryElementAt TryEval TryMakeInterval
            TryMakeTimestamp TryMakeTimestampFromDateTime TryMod TryMultiply TryParseUrl
            TrySubtract TryToBinary TryToNumber TryUrlDecode TryValidateUTF8
            TupleDifferenceDouble TupleDifferenceInteger TupleDifferenceThetaDouble
            TupleDifferenceThetaInteger TupleIntersectionDouble TupleIntersectionInteger
            TupleIntersectionThetaDouble TupleIntersectionThetaInteger
            TupleSketchEstimateDouble TupleSketchEstimateInteger TupleSketchSummaryDouble
            TupleSketchSummaryInteger TupleSketchThetaDouble TupleSketchThetaInteger
            TupleUnionDouble TupleUnionInteger TupleUnionThetaDouble TupleUnionThetaInteger
            TypeOf UnBase32 UnBase64 UnaryMinus UnaryPositive UnboundedFollowing
            UnboundedPreceding Unhex UnixDate UnixMicros UnixMillis UnixNanos UnixSeconds
            UnixTimestamp UnresolvedCollation UnresolvedNamedLambdaVariable
            UnresolvedWindowExpression UnscaledValue UnspecifiedFrame UpdateFields Upper
            UrlDecode UrlEncode ValidateUTF8 VectorAvg VectorCosineSimilarity
            VectorInnerProduct VectorL2Distance VectorNorm VectorNormalize VectorSum WeekDay
            WeekOfYear WidthBucket WindowExpression WindowSpecDefinition WindowTime With
            WithField XxHash64 Year YearOfWeek ZeroIfNull ZipWith
        """,
        _CATALYST + "expressions.aggregate": """
            AggregateExpression AnyValue ApproxTopK ApproxTopKAccumulate ApproxTopKCombine
            ApproximatePercentile Average BitAndAgg BitOrAgg BitXorAgg BoolAnd BoolOr
            CollectList CollectSet CollectUnion Corr Count CountIf CountMinSketchAgg
            CovPopulation CovSample First HistogramNumeric HllSketchAgg HllUnionAgg
            HyperLogLogPlusPlus KllMergeAggBigint KllMergeAggDouble KllMergeAggFloat
            KllSketchAggBigint KllSketchAggDouble KllSketchAggFloat Kurtosis Last ListAgg Max
            MaxBy MaxMinByK Median Min MinBy Mode Percentile PercentileCont PercentileDisc
            PivotFirst RegrAvgX RegrAvgY RegrCount RegrIntercept RegrR2 RegrReplacement
            RegrSXX RegrSXY RegrSYY RegrSlope Skewness StddevPop StddevSamp Sum
            ThetaIntersectionAgg ThetaSketchAgg ThetaUnionAgg TupleIntersectionAggDouble
            TupleIntersectionAggInteger TupleSketchAggDouble TupleSketchAggInteger
            TupleUnionAggDouble TupleUnionAggInteger VariancePop VarianceSamp
        """,
        _CATALYST + "expressions.st": """
            ST_AsBinary ST_GeogFromWKB ST_GeomFromWKB ST_SetSrid ST_Srid
        """,
        _CATALYST + "expressions.variant": """
            IsValidVariant IsVariantNull ParseJson SchemaOfVariant SchemaOfVariantAgg
            ToVariantObject UnwrapVariantCastError VariantArrayAppend VariantDelete
            VariantExplode VariantGet VariantInsert VariantSet VariantStripNulls
        """,
        _SPARK + "execution.aggregate": """
            ScalaAggregator
        """,
    }
)
"""Expressions, as they are parsed and as they are analysed."""

FUNCTIONS: Final = EXPRESSIONS | _classes(
    {
        _CATALYST + "expressions": """
            CeilExpressionBuilder CollateExpressionBuilder ContainsExpressionBuilder
            CounterDiffExpressionBuilder DatePartExpressionBuilder EndsWithExpressionBuilder
            ExplodeExpressionBuilder ExplodeGeneratorBuilder ExplodeOuterGeneratorBuilder
            FloorExpressionBuilder HourExpressionBuilder InlineExpressionBuilder
            InlineGeneratorBuilder InlineOuterGeneratorBuilder LPadExpressionBuilder
            MakeTimestampExpressionBuilder MakeTimestampLTZExpressionBuilder
            MakeTimestampNTZExpressionBuilder MaskExpressionBuilder MinuteExpressionBuilder
            ParseToTimestampLTZExpressionBuilder ParseToTimestampNTZExpressionBuilder
            PosExplodeExpressionBuilder PosExplodeGeneratorBuilder
            PosExplodeOuterGeneratorBuilder RPadExpressionBuilder RaiseErrorExpressionBuilder
            SecondExpressionBuilder StartsWithExpressionBuilder StringInstrExpressionBuilder
            TimeBucketExpressionBuilder ToCharacterBuilder TryMakeTimestampExpressionBuilder
            TryMakeTimestampLTZExpressionBuilder TryMakeTimestampNTZExpressionBuilder
            TryToDateExpressionBuilder TryToTimeExpressionBuilder
            TryToTimestampExpressionBuilder TupleUnionDoubleExpressionBuilder
            TupleUnionIntegerExpressionBuilder TupleUnionThetaDoubleExpressionBuilder
            TupleUnionThetaIntegerExpressionBuilder
        """,
        _CATALYST + "expressions.aggregate": """
            CountMinSketchAggExpressionBuilder MaxByBuilder MinByBuilder ModeBuilder
            PercentileContBuilder PercentileDiscBuilder TryAverageExpressionBuilder
            TrySumExpressionBuilder TupleSketchAggDoubleExpressionBuilder
            TupleSketchAggIntegerExpressionBuilder TupleUnionAggDoubleExpressionBuilder
            TupleUnionAggIntegerExpressionBuilder
        """,
        _CATALYST + "expressions.variant": """
            ParseJsonExpressionBuilder TryParseJsonExpressionBuilder
            TryVariantArrayAppendExpressionBuilder TryVariantGetExpressionBuilder
            TryVariantInsertExpressionBuilder TryVariantSetExpressionBuilder
            VariantArrayAppendExpressionBuilder VariantExplodeGeneratorBuilder
            VariantExplodeOuterGeneratorBuilder VariantGetExpressionBuilder
            VariantInsertExpressionBuilder VariantSetExpressionBuilder
            VariantStripNullsExpressionBuilder
        """,
    }
)
"""What makes an expression of a function's arguments, where that is a class of its own."""

USERS: Final = frozenset({"java_udf", "python_udf", "scala_udf"})
"""Where functions come from that the program has registered in its session."""

_CLOCK: Final = "push the time as a column; or compare NOW() with a column, in WHERE"
_INPUT: Final = "a view is a function of its input: push the value as a column"
_VALUE: Final = "write the value itself"
_CODE: Final = (
    "a query runs no code but Spark's functions and those that the program has registered"
)
_FILES: Final = "a query reads sources, tables and views only"
_GENERATED: Final = "read a source, a table or a view"

_REFUSED: Final = {
    _CLOCK: """
        CURRENT_DATE=CurrentDate CURRENT_DATE=CurDateExpressionBuilder CURRENT_TIME=CurrentTime
        CURRENT_TIMESTAMP=CurrentTimestamp CURRENT_TIMESTAMP=CurrentTimestampExpressionBuilder
        CURRENT_TIMESTAMP=CurrentTimestampNanos LOCALTIMESTAMP=LocalTimestamp
        LOCALTIMESTAMP=LocalTimestampNanos LOCALTIMESTAMP=LocalTimestampExpressionBuilder NOW=Now
        NOW=NowExpressionBuilder
    """,
    _INPUT: """
        AES_ENCRYPT=AesEncrypt MONOTONICALLY_INCREASING_ID=MonotonicallyIncreasingID RAND=Rand
        RANDN=Randn RANDSTR=RandStr SHUFFLE=Shuffle SPARK_PARTITION_ID=SparkPartitionID
        UNIFORM=Uniform UUID=Uuid
    """,
    _VALUE: """
        CURRENT_CATALOG=CurrentCatalog CURRENT_DATABASE=CurrentDatabase CURRENT_PATH=CurrentPath
        CURRENT_TIMEZONE=CurrentTimeZone CURRENT_USER=CurrentUser VERSION=SparkVersion
    """,
    _CODE: "REFLECT=CallMethodViaReflection TRY_REFLECT=TryReflect",
    _FILES: """
        FROM_AVRO=FromAvro FROM_PROTOBUF=FromProtobuf FROM_XML=XmlToStructs
        INPUT_FILE_BLOCK_LENGTH=InputFileBlockLength INPUT_FILE_BLOCK_START=InputFileBlockStart
        INPUT_FILE_NAME=InputFileName SCHEMA_OF_AVRO=SchemaOfAvro SCHEMA_OF_XML=SchemaOfXml
        TO_AVRO=ToAvro TO_PROTOBUF=ToProtobuf XPATH=xml.XPathList XPATH_BOOLEAN=xml.XPathBoolean
        XPATH_DOUBLE=xml.XPathDouble XPATH_FLOAT=xml.XPathFloat XPATH_INT=xml.XPathInt
        XPATH_LONG=xml.XPathLong XPATH_SHORT=xml.XPathShort XPATH_STRING=xml.XPathString
    """,
    _GENERATED: """
        COLLATIONS=Collations MEASURE=aggregate.Measure SQL_KEYWORDS=SQLKeywords
    """,
}

REFUSED: Final = {
    f"{_CATALYST}expressions.{of}": (name, hint)
    for hint, pairs in _REFUSED.items()
    for name, of in (pair.split("=") for pair in pairs.split())
} | {
    f"{_CATALYST}plans.logical.PythonWorkerLogs": ("PYTHON_WORKER_LOGS", _GENERATED),
    f"{_CATALYST}plans.logical.Range": ("RANGE", _GENERATED),
    f"{_CATALYST}plans.logical.ScriptTransformation": ("TRANSFORM ... USING", _CODE),
}
"""Known classes that no query may have: what they are in SQL, and what to do instead."""
