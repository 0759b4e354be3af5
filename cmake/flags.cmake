# Released code keeps its assertions: a broken invariant ends the process, and the next start
# reads the truth from the store.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

# What every target of the project is compiled with.
add_library(lh_flags INTERFACE)
target_compile_definitions(lh_flags INTERFACE _GNU_SOURCE LEASEHOLD_VERSION="${PROJECT_VERSION}")
target_compile_options(lh_flags INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wformat=2
    -Wundef -Wvla -Werror -fstack-protector-strong -fno-strict-aliasing
    # clang counts an enum given to an int, and literals joined on purpose; gcc judges the rest.
    $<$<C_COMPILER_ID:Clang>:-Wno-sign-conversion> $<$<C_COMPILER_ID:Clang>:-Wno-string-concatenation>)
target_include_directories(lh_flags INTERFACE ${PROJECT_SOURCE_DIR}/include)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_definitions(lh_flags INTERFACE _FORTIFY_SOURCE=2)
endif()

# The static helpers that run inside a sandbox are never instrumented.
add_library(lh_sanitize INTERFACE)
if(LEASEHOLD_SANITIZE)
    target_compile_options(lh_sanitize INTERFACE -fsanitize=${LEASEHOLD_SANITIZE}
        -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(lh_sanitize INTERFACE -fsanitize=${LEASEHOLD_SANITIZE})
endif()
if(LEASEHOLD_FUZZ)
    target_compile_options(lh_sanitize INTERFACE -fsanitize=fuzzer-no-link)
endif()

# lh_module(NAME LIBS…): a static library of all C files of the calling folder.
function(lh_module name)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
    list(FILTER sources EXCLUDE REGEX "/main\\.c$")
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC lh_flags lh_sanitize ${ARGN})
endfunction()

# lh_static_program(NAME FILES…): a static program that needs nothing of the host.
function(lh_static_program name)
    add_executable(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE lh_flags)
    target_link_options(${name} PRIVATE -static)
endfunction()
