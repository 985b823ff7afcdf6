# Make as it is used: rules that run at once, leave files, and one that joins them.
PARTS = 1 2 3 4
FILES = $(PARTS:%=$(OUT)/%)

all: $(FILES)
	@cat $(FILES)

$(OUT)/%:
	@(echo part $*; cut -d' ' -f$* text-300k | sort | uniq -c | sort -rn | head -n 3) > $@
