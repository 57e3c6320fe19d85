# The page: web/ -> ${GEN}/web_assets.{h,c} -> the static library rl_web.
#
# The dependencies are installed inside the build folder, not in web/node_modules, so that builds in
# different folders never meet and the source tree is only read. `npm ci` runs again when the lock
# file changes.
find_program(NODE_EXECUTABLE NAMES node nodejs REQUIRED)
find_program(NPM_EXECUTABLE NAMES npm REQUIRED)

set(WEB_DIR ${CMAKE_CURRENT_LIST_DIR})
set(WEB_DEPS ${CMAKE_BINARY_DIR}/web)
file(GLOB_RECURSE WEB_SOURCES CONFIGURE_DEPENDS ${WEB_DIR}/src/*)

add_custom_command(OUTPUT ${WEB_DEPS}/installed
  COMMAND ${CMAKE_COMMAND} -E make_directory ${WEB_DEPS}
  COMMAND ${CMAKE_COMMAND} -E copy ${WEB_DIR}/package.json ${WEB_DIR}/package-lock.json
    ${WEB_DIR}/.npmrc ${WEB_DEPS}
  COMMAND ${NPM_EXECUTABLE} --prefix ${WEB_DEPS} ci --omit=dev --prefer-offline --no-progress --loglevel=error
  COMMAND ${CMAKE_COMMAND} -E touch ${WEB_DEPS}/installed
  WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
  DEPENDS ${WEB_DIR}/package-lock.json ${WEB_DIR}/package.json ${WEB_DIR}/.npmrc
  COMMENT "Installing what the page needs" VERBATIM)

add_custom_command(OUTPUT ${GEN}/web_assets.h ${GEN}/web_assets.c
  COMMAND ${NODE_EXECUTABLE} ${WEB_DIR}/build.mjs --deps ${WEB_DEPS} --out ${WEB_DEPS}/dist --c ${GEN}
  DEPENDS ${WEB_DEPS}/installed ${WEB_DIR}/build.mjs ${WEB_DIR}/embed.mjs ${WEB_DIR}/client.d.ts ${WEB_SOURCES}
  COMMENT "Building the page" VERBATIM)

add_library(rl_web STATIC ${GEN}/web_assets.c ${GEN}/web_assets.h)
target_include_directories(rl_web PUBLIC ${GEN})
